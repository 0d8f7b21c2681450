"""Random graphs of every operator: cut in four ways, each computes what the zeroed one does."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from pruned import feeds, hold, some
from random_graphs import random_graph

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse

SCOPE = [
    *("Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "ConvTranspose", "DepthToSpace", "Expand"),
    *("Flatten", "GRU", "Gather", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization"),
    *("InstanceNormalization", "LSTM", "MatMul", "MaxPool", "Mul", "PRelu", "Pad", "RNN", "ReduceMean", "Relu"),
    *("Reshape", "Resize", "Sigmoid", "Slice", "Softmax", "SpaceToDepth", "Split", "Squeeze", "Sub", "Tile"),
    *("Transpose", "Unsqueeze", "Where"),
]
SHARES = (0.0, 0.3, 0.6, 1.0)  # of the units of each group; one is always left


@pytest.mark.parametrize("seed", range(100))
def test_a_random_graph_without_some_channels_computes_what_it_does_with_zeros_there(seed: int, tmp_path: Path) -> None:
    given, model = tmp_path / "given.onnx", tmp_path / "model.onnx"
    onnx.save(random_graph(seed), given)
    graph.normalise(given, model)
    coupled = analyse(graph.load(model))
    for share, batch in zip(SHARES, (1, 3, 2, 1), strict=True):
        small = onnx.load(hold(coupled, some(coupled, share, seed), tmp_path, feeds(model, batch, seed)))
        before = onnx.load(model)
        assert list(small.graph.input) == list(before.graph.input)
        assert list(small.graph.output) == list(before.graph.output)
        assert list(small.metadata_props) == list(before.metadata_props)
        assert {node.name for node in coupled.model.graph} <= {node.name for node in small.graph.node}


def test_every_operator_in_scope_passes_channels_on(tmp_path: Path) -> None:
    passed = set()
    for seed in range(100):
        onnx.save(random_graph(seed), tmp_path / "given.onnx")
        graph.normalise(tmp_path / "given.onnx", tmp_path / "model.onnx")
        passed |= _passed(analyse(graph.load(tmp_path / "model.onnx")))
    assert set(SCOPE) <= passed


def _passed(coupled: Coupled) -> set[str]:
    """Give the operators with a unit that is in an input and an output."""
    units: dict[str, set[int]] = {}
    for (name, _), each in coupled.units.items():
        units.setdefault(name, set()).update(each[each >= 0].tolist())
    return {
        node.op_type
        for node in coupled.model.graph
        for value in node.inputs
        if value is not None and any(units.get(value.name, set()) & units.get(out.name, set()) for out in node.outputs)
    }
