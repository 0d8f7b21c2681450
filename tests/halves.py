"""Graphs in ONNX text, put into normal form, and what FP16 arithmetic makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from compressor import graph

Arrays = Mapping[str, Any]
FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
IF = """c = Greater(m, zero) z = If(c)
    <then_branch = t () => (float[N,4] a) {{ {then} }}, else_branch = e () => (float[N,4] b) {{ b = Sub(h, x) }}>"""


def write(
    path: Path, body: str, weights: Arrays | None = None, ins: str = "float[N,4] x", outs: str = "float[N,4] y"
) -> Path:
    """Write a model in normal form: nodes are called as their operator and output, such as `Relu_r`."""
    given = path.with_name(f"given.{path.name}")
    onnx.save(proto(body, weights, ins, outs), given)
    graph.normalise(given, path)
    return path


def proto(body: str, weights: Arrays | None = None, ins: str = "float[N,4] x", outs: str = "float[N,4] y") -> Any:
    """Give a model as it is written, without names of nodes or types of values."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({ins}) => ({outs}) {{ {body} }}')
    arrays = {name: np.asarray(w, None if hasattr(w, "dtype") else np.float32) for name, w in (weights or {}).items()}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made


def run(path: Path, **feeds: Any) -> Any:
    """Give the first output with each operator's result rounded to its type, as ONNX Runtime does not on a CPU."""
    model = onnx.load(path)
    model.opset_import[0].version = 21  # the reference implementation has no DequantizeLinear of before 19
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, feeds)[0]


def kinds(path: Path) -> dict[str, int]:
    """Give the type of the first output of each node of the main graph, by the names of nodes."""
    made = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True)
    values = (*made.graph.value_info, *made.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return {node.name: types[node.output[0]] for node in made.graph.node}


def sqnr_db(wanted: Any, found: Any) -> float:
    """Give the signal-to-noise ratio in decibels."""
    noise = np.square(np.float64(found) - np.float64(wanted)).sum()
    return float(10 * np.log10(np.square(np.float64(wanted)).sum() / noise)) if noise else math.inf
