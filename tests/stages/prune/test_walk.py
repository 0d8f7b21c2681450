"""Running a graph piece by piece gives what running it whole gives, whatever is on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from exact import made_up
from numpy.typing import NDArray

from compressor import graph, runtime
from compressor.graph import shapes
from compressor.records import Model
from compressor.samples import Samples
from compressor.stages.prune import walk
from compressor.stages.prune.walk import Spool, Walk

Make = Callable[..., Model]
Arrays = Mapping[str, NDArray[Any]]
NET = """g (float[n,3,6,6] x, float[n,4] z) => (float[n,2,6,6] y, float[n,4] t) {
    a = Conv <pads: ints = [1,1,1,1]> (x, w1)
    b = Relu (a)
    c = Conv <pads: ints = [1,1,1,1]> (b, w2)
    d = Add (b, c)
    s = Shape (d)
    e = Relu (d)
    t = Tanh (z)
    y = Conv (e, w3)
}"""
WEIGHTS = {"w1": [8, 3, 3, 3], "w2": [8, 8, 3, 3], "w3": [2, 8, 1, 1]}
BRANCHES = """g (float[n,4] x) => (float[n,4] y) {
    a = Relu (x)
    b = Tanh (x)
    m = ReduceMax <keepdims = 0> (a)
    k = Greater (m, zero)
    y = If (k) <then_branch = yes () => (float[n,4] u) { u = Add (a, b) },
                else_branch = no () => (float[n,4] v) { v = Identity (b) }>
}"""


def opened(make: Make, text: str = NET, weights: Mapping[str, Any] = WEIGHTS) -> tuple[ir.Model, Samples]:
    model = make(text, weights)
    return shapes.settled(graph.load(model.path), None), made_up(model, 5)


def whole(model: ir.Model, samples: Samples, names: list[str], folder: Path) -> list[Arrays]:
    """Run the graph at once, with these values as outputs."""
    proto = ir.to_proto(model)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    onnx.save(proto, folder / "whole.onnx")
    session = runtime.load(folder / "whole.onnx", runtime.options(1, spinning=False))
    return [session(feed) for feed in samples]


def held(found: list[Arrays], wanted: list[Arrays]) -> None:
    assert len(found) == len(wanted) == 5
    for one, other in zip(found, wanted, strict=True):
        for name, array in one.items():
            assert np.allclose(array, other[name], atol=1e-5)


@pytest.mark.parametrize("disk", [0, 1 << 30])
def test_every_piece_gives_what_the_whole_gives(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: int
) -> None:
    monkeypatch.setattr(walk, "_DISK_BYTES", disk)
    model, samples = opened(make)
    step = Walk(model, samples, tmp_path)
    wanted = whole(model, samples, ["a", "b", "d"], tmp_path)
    for names, before in ((["a"], "Conv_a"), (["a", "b"], "Conv_c"), (["b", "d"], "Conv_c"), (["d"], "Conv_y")):
        held(list(step.run(names, step.place(before))), wanted)


def test_what_lies_on_disk_is_what_is_still_read(make: Make, tmp_path: Path) -> None:
    model, samples = opened(make)
    step = Walk(model, samples, tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    list(step.run(["b"], step.place("Conv_y")))
    left = [path.stat().st_size for path in folder.iterdir() if path.suffix != ".onnx"]
    assert left == [5 * (128 + 4 * 8 * 6 * 6)]  # what the last layer reads, each array behind its header; no input


def test_a_layer_ahead_may_change(make: Make, tmp_path: Path) -> None:
    """Where the walk stands, what is on disk no longer depends on what comes."""
    model, samples = opened(make)
    step = Walk(model, samples, tmp_path)
    list(step.run(["b"], step.place("Conv_c")))
    value = model.graph.initializers["w2"]
    value.const_value = ir.tensor(value.const_value.numpy() * 2, name="w2")
    held(list(step.run(["c"], step.place("Conv_y"))), whole(model, samples, ["c"], tmp_path))


def test_what_graphs_inside_read_is_kept(make: Make, tmp_path: Path) -> None:
    model, samples = opened(make, BRANCHES, {"zero": np.array(0, np.float32)})
    step = Walk(model, samples, tmp_path)
    wanted = whole(model, samples, ["m", "y"], tmp_path)
    held(list(step.run(["m"], len(list(model.graph)) - 1)), wanted)
    held(list(step.run(["y"], len(list(model.graph)) - 1)), wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3), (1,)])
def test_arrays_come_back_as_they_went(tmp_path: Path, shape: tuple[int, ...], dtype: Any) -> None:
    spool = Spool(tmp_path / "spool")
    arrays = [np.full((*shape, 1 + i)[: len(shape)], i, dtype) for i in range(3)]
    for array in arrays:
        spool.add(array)
    for _ in range(2):
        back = list(spool)
        assert [(a.shape, a.dtype) for a in back] == [(array.shape, array.dtype) for array in arrays]
        assert all(np.array_equal(one, other) for one, other in zip(back, arrays, strict=True))
    assert (spool.count, spool.nbytes) == (3, sum(array.nbytes for array in arrays))


def test_what_would_not_fit_on_disk_is_not_put_there(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_DISK_BYTES", 0)
    model, samples = opened(make)
    step = Walk(model, samples, tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    list(step.run(["b"], step.place("Conv_y")))
    left = sorted(path.stat().st_size for path in folder.iterdir() if path.suffix != ".onnx")
    assert left == [5 * (128 + 4 * 4), 5 * (128 + 4 * 3 * 6 * 6)]  # the inputs, from which all is computed again
