"""What pruning must equal: the model with every slice of weights of the removed units set to 0, run beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort

from compressor import graph
from compressor.stages.prune.groups import Coupled
from compressor.stages.prune.surgery import shrunk

Array = npt.NDArray[np.generic]
TOLERANCE = 1e-4  # of the largest magnitude of an output


def some(coupled: Coupled, share: float, seed: int = 0) -> frozenset[int]:
    """Draw a share of the units of each group; one at least is left."""
    rng = np.random.default_rng(seed)
    counts = (min(len(group.units) - 1, round(share * len(group.units))) for group in coupled.groups)
    drawn = (rng.choice(group.units, n, replace=False) for group, n in zip(coupled.groups, counts, strict=True))
    return frozenset(int(unit) for units in drawn for unit in units)


def zeroed(coupled: Coupled, removed: Collection[int]) -> ir.Model:
    """Give the analysed model with every slice of float initializers that belongs to a removed unit set to 0."""
    model, gone = coupled.model.clone(), np.array(sorted(removed))
    for name, value in model.graph.initializers.items():
        array = value.const_value.numpy().copy()
        if not value.const_value.dtype.is_floating_point():
            continue
        for axis in range(array.ndim):
            if (name, axis) in coupled.units:
                index = [slice(None)] * array.ndim
                index[axis] = np.flatnonzero(np.isin(coupled.units[name, axis], gone))
                array[tuple(index)] = 0
        value.const_value = ir.tensor(array, dtype=value.const_value.dtype, name=name)
    return model


def feeds(path: Path, sizes: int = 5, seed: int = 0) -> dict[str, Array]:
    """Draw inputs for a model; dimensions that are open get `sizes`, integers are 0 or 1."""
    rng = np.random.default_rng(seed)
    drawn = {}
    for wanted in _session(path).get_inputs():
        shape = [dim if isinstance(dim, int) else sizes for dim in wanted.shape]
        kind = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(_NAMES[wanted.type]))
        array = rng.normal(size=shape) if kind.kind == "f" else rng.integers(0, 2, shape)
        drawn[wanted.name] = array.astype(kind)
    return drawn


def run(path: Path, given: Mapping[str, Array]) -> list[Array]:
    """Run a model without graph optimisations."""
    outputs: list[Array] = _session(path).run(None, dict(given))
    return outputs


def hold(coupled: Coupled, removed: frozenset[int], folder: Path, given: Mapping[str, Array] | None = None) -> Path:
    """Assert that the shrunk model is valid and computes what the zeroed one does; give its file."""
    small, reference = folder / "shrunk.onnx", folder / "zeroed.onnx"
    graph.save(shrunk(coupled, removed), small)
    graph.save(zeroed(coupled, removed), reference)
    onnx.checker.check_model(str(small), full_check=True)
    inputs = given or feeds(reference)
    for wanted, found in zip(run(reference, inputs), run(small, inputs), strict=True):
        assert found.shape == wanted.shape
        assert np.isfinite(wanted.astype(np.float64)).all(), "the reference says nothing"
        worst = np.abs(found.astype(np.float64) - wanted).max(initial=0)
        assert worst <= TOLERANCE * max(1e-6, np.abs(wanted.astype(np.float64)).max(initial=0))
    return small


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


_NAMES = {
    "tensor(bool)": "BOOL",
    "tensor(double)": "DOUBLE",
    "tensor(float)": "FLOAT",
    "tensor(float16)": "FLOAT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
}
