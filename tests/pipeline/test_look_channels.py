"""Which channels could be pruned, asked without compressing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from finished import finish
from onnx import numpy_helper

from compressor import pipeline
from compressor.errors import InputError
from compressor.records import Channels

CONVS = """g (float[n,3,{side},{side}] x) => (float[n,2,h,w] y) {{
    [first] a = Conv (x, w1)
    [second] b = Conv (a, wb)
    [last] y = Conv (b, w2)
}}"""
QUANTIZED = """g (float[n,4] x) => (float[n,4] y) {
    q = QuantizeLinear (x, scale, zero)
    y = DequantizeLinear (q, scale, zero)
}"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    shapes = {"w1": (8, 3, 1, 1), "wb": (16, 8, 1, 1), "w2": (2, 16, 1, 1)}
    return write(tmp_path / "net.onnx", CONVS.format(side=6), {n: np.ones(s, np.float32) for n, s in shapes.items()})


def write(path: Path, text: str, arrays: dict[str, np.ndarray]) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(proto, path)
    return path


def test_groups_come_with_their_share_of_the_macs_and_then_those_that_stay(net: Path) -> None:
    channels = finish(pipeline.inspect(net, {}, prune=True)).channels
    assert channels is not None
    total = 8 * 3 + 16 * 8 + 2 * 16
    stay = ("the model has an output 'y', whose shape stays",)
    assert [replace(group, macs=None) for group in channels] == [
        Channels("first", 8, layers=("first",)),
        Channels("second", 16, layers=("second",)),
        Channels("last", 2, layers=("last",), stay=stay),
    ]
    shares = [group.macs for group in channels[:2]]
    assert shares == pytest.approx([(8 * 3 + 16 * 8) / total, (16 * 8 + 2 * 16) / total])
    assert channels[2].macs is None


def test_nothing_is_said_unless_asked(net: Path) -> None:
    assert finish(pipeline.inspect(net, {})).channels is None


def test_open_sizes_settle_no_macs_until_they_are_given(tmp_path: Path) -> None:
    shapes = {"w1": (8, 3, 1, 1), "wb": (16, 8, 1, 1), "w2": (2, 16, 1, 1)}
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    net = write(tmp_path / "net.onnx", CONVS.format(side="s"), arrays)
    channels = finish(pipeline.inspect(net, {}, prune=True)).channels
    assert channels is not None
    assert [(group.channels, group.macs) for group in channels] == [(8, None), (16, None), (2, None)]
    given = finish(pipeline.inspect(net, {"x": (1, 3, 6, 6)}, prune=True)).channels
    assert given is not None
    assert [group.macs is None for group in given] == [False, False, True]


def test_a_quantized_model_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "q.onnx", QUANTIZED, {"scale": np.array(0.1, np.float32), "zero": np.array(0, np.int8)})
    with pytest.raises(InputError, match=r"the model is quantized already.*prune the float model"):
        finish(pipeline.inspect(path, {}, prune=True))
