"""The graphs that the onnx package brings, with random weights: what can be removed of each, and that it can."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from pruned import hold, some

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


class Net(NamedTuple):
    """How many units can be removed, of all that the layers but the last make, and why others stay."""

    units: int
    stays: tuple[str, ...] = ()


NETS = {"squeezenet": Net(0)}


@pytest.mark.parametrize("name", NETS)
def test_a_pruned_graph_is_the_graph_without_the_channels(name: str, tmp_path: Path) -> None:
    coupled = opened(name, tmp_path)
    assert sum(group.channels for group in coupled.groups) >= NETS[name].units
    hold(coupled, some(coupled, 0.5), tmp_path)


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
        model.graph.node[-1].CopyFrom(
            onnx.helper.make_node("Identity", model.graph.node[-1].input, model.graph.node[-1].output)
        )
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
