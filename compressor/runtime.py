"""ONNX Runtime in one place: sessions, the optimised graph, the saturation probe, comparison of two models' outputs.

Anything else that has to run a graph asks here.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compressor.errors import InputError, MachineError, RungError
from compressor.records import Array, Audit, Feeds, Outputs, Progress, Work

if TYPE_CHECKING:
    import onnxruntime as ort

IDENTICAL_DB = 200.0
"""SQNR reported for outputs that are equal; float32 rounding alone gives about 140 dB."""

_CPU = "CPUExecutionProvider"
_INTEGER = {
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "QAttention",
    "QGemm",
}
_FLOAT = {"Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "GRU", "LSTM", "MatMul", "RNN"}
_QDQ = {"QuantizeLinear", "DequantizeLinear"}


class Loaded:
    """A model in an ONNX Runtime session; a `records.Session`."""

    def __init__(self, session: ort.InferenceSession) -> None:
        """Take an open session."""
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def __call__(self, feeds: Feeds) -> Outputs:
        """Run one batch.

        Raises:
            RungError: ONNX Runtime failed.
        """
        run = self._session.run
        try:  # and no context manager: of a model of microseconds it would be a tenth
            values = run(None, dict(feeds))
        except Exception as error:
            raise _refused("run it", error) from error
        return dict(zip(self._outputs, values, strict=True))

    def close(self) -> None:
        """Free the session; a later call fails."""
        del self._session


def options(threads: int, *, spinning: bool) -> dict[str, str]:
    """Give the session options that stand in an artifact, with which it is measured and served."""
    return {
        "intra_op_num_threads": str(threads),
        "inter_op_num_threads": "1",
        "session.intra_op.allow_spinning": str(int(spinning)),
        "providers": _CPU,
    }


def emulated(settings: Mapping[str, str]) -> dict[str, str]:
    """Give the same options with integer arithmetic replaced by its exact float emulation."""
    return {**settings, "session.disable_quant_qdq": "1"}


def load(path: Path, settings: Mapping[str, str]) -> Loaded:
    """Open a model with the options of an artifact.

    Raises:
        MachineError: A provider that the options name is not available here.
        RungError: ONNX Runtime refuses the model.
    """
    import onnxruntime as ort

    providers = settings.get("providers", _CPU).split(",")
    if missing := [name for name in providers if name not in ort.get_available_providers()]:
        raise MachineError(f"{missing[0]} is not available here; found {', '.join(ort.get_available_providers())}")
    with _translated(f"load {path.name}"):
        return Loaded(ort.InferenceSession(str(path), _session_options(settings), providers=providers))


def compare(reference: Path, candidate: Path, feeds: Iterable[Feeds]) -> Work[dict[str, float]]:
    """Give the SQNR in dB of each output of `candidate` against `reference`.

    Both run on the kernels of this machine. Equal outputs give `IDENTICAL_DB`.
    SQNR = 10 log10(sum reference² / sum (candidate - reference)²), summed over all feeds; for text, the number of
    elements over the number of those that differ.

    Raises:
        RungError: An output is missing or new, has another shape or type, or is not finite where the reference is.
    """
    one, two = (load(path, options(1, spinning=False)) for path in (reference, candidate))
    power: dict[str, tuple[float, float]] = {}
    for done, feed in enumerate(feeds):
        yield Progress("compare outputs", done)
        expected, found = one(feed), two(feed)
        _check_names(expected, found)
        for name, wanted in expected.items():
            _check_output(name, np.asarray(wanted), np.asarray(found[name]))
            signal, noise = power.get(name, (0.0, 0.0))
            more_signal, more_noise = _powers(np.asarray(wanted), np.asarray(found[name]))
            power[name] = (signal + more_signal, noise + more_noise)
    return {name: _sqnr_db(signal, noise) for name, (signal, noise) in power.items()}


def audit(path: Path, settings: Mapping[str, str], excluded: Mapping[str, str]) -> Audit:
    """Count what ONNX Runtime computes with integers once its graph optimisations ran on this machine."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        load(path, {**settings, "optimized_model_filepath": str(optimised)}).close()
        kinds = [node.op_type for node in onnx.load(optimised, load_external_data=False).graph.node]
    return Audit(
        integer_nodes=sum(kind in _INTEGER or kind.startswith("QLinear") for kind in kinds),
        float_nodes=sum(kind in _FLOAT for kind in kinds),
        qdq_left=sum(kind in _QDQ for kind in kinds),
        excluded=excluded,
    )


def saturates() -> bool:
    """Tell whether this CPU's integer kernels overflow: U8 times S8 pairs summed in 16 bits (AVX2 without VNNI).

    64 products of 255 and 127 must sum to 2 072 640.
    """
    import onnx

    depth, activation, weight = 64, 255, 127
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 13]> probe (uint8[1,{depth}] a, int8[{depth},{depth}] b) '
        f"=> (int32[1,{depth}] y) {{ y = MatMulInteger(a, b) }}"
    )
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), providers=[_CPU])
    feeds = {"a": np.full((1, depth), activation, np.uint8), "b": np.full((depth, depth), weight, np.int8)}
    return bool(np.any(session.run(None, feeds)[0] != depth * activation * weight))


def providers() -> list[str]:
    """Give the execution providers of this installation."""
    import onnxruntime as ort

    return list(ort.get_available_providers())


def check_runs(path: Path, feeds: Feeds) -> Outputs:
    """Run the caller's model once, as given.

    Raises:
        InputError: ONNX Runtime does not take it, or these inputs.
    """
    try:
        outputs = load(path, options(1, spinning=False))(feeds)
    except RungError as error:
        raise InputError(f"{path}: {error}; the model must run in ONNX Runtime before it can be compressed") from error
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            raise InputError(f"{path}: output {name!r} is a {type(value).__name__}, expected tensors only")
    return outputs


def _session_options(settings: Mapping[str, str]) -> Any:
    import onnxruntime as ort

    result = ort.SessionOptions()
    result.log_severity_level = 3
    for name, value in settings.items():
        if name == "optimized_model_filepath":
            result.optimized_model_filepath = value
        elif name.startswith("session."):
            result.add_session_config_entry(name, value)
        elif name != "providers":
            setattr(result, name, int(value))
    return result


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _refused(doing, error) from error


def _refused(doing: str, error: Exception) -> RungError:
    """Give ONNX Runtime's exceptions, which share no class of their own, as one of ours."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return RungError(f"ONNX Runtime could not {doing}: {reason[:400]}")


def _check_names(expected: Outputs, found: Outputs) -> None:
    for name in expected.keys() ^ found.keys():
        raise RungError(f"output {name!r} is {'gone' if name in expected else 'new'}")


def _check_output(name: str, wanted: Array, found: Array) -> None:
    if wanted.shape != found.shape:
        raise RungError(f"output {name!r} has shape {found.shape}, expected {wanted.shape}")
    if wanted.dtype != found.dtype:
        raise RungError(f"output {name!r} has type {found.dtype}, expected {wanted.dtype}")
    if wanted.dtype.kind == "f" and np.any(np.isfinite(wanted) & ~np.isfinite(found)):
        raise RungError(f"output {name!r} is not finite where the original's is")


def _powers(wanted: Array, found: Array) -> tuple[float, float]:
    """Give signal and noise power over the values that are finite in the reference."""
    if wanted.dtype.kind not in "fiub":
        return float(wanted.size), float(np.count_nonzero(wanted != found))
    finite = np.isfinite(wanted)
    signal = wanted[finite].astype(np.float64)
    noise = found[finite].astype(np.float64) - signal
    return float(signal @ signal), float(noise @ noise)


def _sqnr_db(signal: float, noise: float) -> float:
    if noise == 0:
        return IDENTICAL_DB
    return max(-IDENTICAL_DB, 10 * math.log10(signal / noise)) if signal else -IDENTICAL_DB
