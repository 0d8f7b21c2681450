"""The graphs that the onnx package brings, with random weights: what can be removed of each, and that it can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from pruned import hold, some

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


# Model: least channels that can be removed, and layers of which some or all stay: the last makes the output, LRN mixes
# neighbours, and shuffles by 8 of groups of 17 leave no channel that could go without all others.
NETS: dict[str, tuple[int, set[str]]] = {
    "densenet121": (10240, {"n909"}),
    "inception_v1": (7024, {"n0", "n6", "n142"}),
    "inception_v2": (9952, {"n507"}),
    "resnet50": (11456, {"n174"}),
    "shufflenet": (3944, {"n17", "n29", "n41", "n53", "n201"}),
    "squeezenet": (2944, {"n62"}),
}
LARGE: dict[str, tuple[int, set[str]]] = {
    "bvlc_alexnet": (9216, {"n0", "n4", "n22"}),
    "vgg19": (13696, {"n44"}),
    "zfnet512": (6656, {"n0", "n4", "n20"}),
}


@pytest.mark.parametrize("name", [*NETS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_a_pruned_graph_is_the_graph_without_the_channels(name: str, tmp_path: Path) -> None:
    coupled = opened(name, tmp_path)
    least, stay = (NETS | LARGE)[name]
    assert sum(group.channels for group in coupled.groups) >= least
    assert {one.name for one in coupled.frozen} <= stay
    hold(coupled, some(coupled, 0.5), tmp_path)
    for path in tmp_path.iterdir():  # up to 600 MB each, which pytest would keep
        path.unlink()


def test_every_graph_is_among_these() -> None:
    assert {path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx")} == {*NETS, *LARGE}


def opened(name: str, folder: Path) -> Coupled:
    """Analyse a graph with weights drawn at random, and without the Softmax in which all outputs would look alike."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    rng = np.random.default_rng(0)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in list(model.graph.node):
        if node.op_type == "ConstantOfShape":
            drawn = numpy_helper.from_array(weight(tuple(shapes[node.input[0]]), rng), node.output[0])
            model.graph.initializer.append(drawn)
            model.graph.node.remove(node)
    if model.graph.node[-1].op_type == "Softmax":
        last = model.graph.node.pop()
        model.graph.node.append(onnx.helper.make_node("Identity", last.input[:1], last.output, last.name))
    model.ir_version = 8  # initializers need not be inputs
    onnx.save(model, folder / "given.onnx")
    graph.normalise(folder / "given.onnx", folder / "model.onnx")
    return analyse(graph.load(folder / "model.onnx"))


def weight(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw a kernel or matrix that keeps the scale of what it reads; vectors, of variances too, are positive."""
    if len(shape) == 1:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    drawn = rng.standard_normal(shape, np.float32)
    drawn *= (2 / np.prod(shape[1:])) ** 0.5
    return drawn
