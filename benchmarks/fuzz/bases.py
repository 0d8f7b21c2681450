"""Valid models, recipes and samples, small and of many kinds, to be damaged.

Add a model as a text in `_GRAPHS`, a recipe as a text in `RECIPES`.
"""

from __future__ import annotations

import random
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from random_graphs import random_graph

_DRAWN = 40
"""Random graphs of many operators, beside those written here."""
_WRITTEN = 0.7
"""Share of those written here, which are small and so quickly met."""
_GRAPHS = (
    """<ir_version: 8, opset_import: ["" : 17]> net (float[batch,3,8,8] x) => (float[batch,4] y)
    <float[8,3,3,3] w, float[8] one, float[8] two, float[8] three, float[8] four, float[8,4] v> {
      a = Conv <pads: ints = [1,1,1,1]> (x, w)
      b = BatchNormalization (a, one, two, three, four)
      c = Relu (b)  d = GlobalAveragePool (c)  e = Flatten (d)  y = MatMul (e, v) }""",
    """<ir_version: 10, opset_import: ["" : 20]> logic (float[n,4] x, bool[1] flag) => (float[n,4] y)
    <float[4,4] w> {
      y = If (flag) <then_branch = yes () => (float[n,4] p) { p = MatMul (x, w) },
                     else_branch = no () => (float[n,4] q) { q = Neg (x) }> }""",
    """<ir_version: 9, opset_import: ["" : 18]> turns (float[2,4] x) => (float[2,4] y)
    <int64 times = {3}, bool go = {1}> {
      y = Loop (times, go, x) <body = once (int64 i, bool c, float[2,4] s) => (bool o, float[2,4] t) {
        o = Identity (c)  t = Tanh (s) }> }""",
    """<ir_version: 8, opset_import: ["" : 17]> state (float[5,batch,3] x, float[1,batch,4] h, float[1,batch,4] c)
    => (float[5,1,batch,4] y, float[1,batch,4] hn, float[1,batch,4] cn) <float[1,16,3] w, float[1,16,4] r> {
      y, hn, cn = LSTM <hidden_size = 4> (x, w, r, , , h, c) }""",
    """<ir_version: 8, opset_import: ["" : 17, "local" : 1]> calls (float[n,6] x) => (float[n,6] y) <float[6,6] w> {
      a = MatMul (x, w)  y = local.twice (a) }
    <domain: "local", opset_import: ["" : 17]> twice (s) => (t) { t = Add (s, s) }""",
    """<ir_version: 8, opset_import: ["" : 17]> integers (float[n,4] x) => (float[n,4] y)
    <float scale = {0.1}, uint8 zero = {128}, float[4,4] w> {
      q = QuantizeLinear (x, scale, zero)  d = DequantizeLinear (q, scale, zero)  y = MatMul (d, w) }""",
    """<ir_version: 7, opset_import: ["" : 11]> words (int64[batch,seq] ids, int64[batch,seq] mask)
    => (float[batch,seq,4] y) <float[9,4] table, float[4,4] w> {
      e = Gather (table, ids)  m = Cast <to = 1> (mask)  u = Unsqueeze <axes = [2]> (m)
      a = Mul (e, u)  y = MatMul (a, w) }""",
    """<ir_version: 8, opset_import: ["" : 17]> half (float16[2,4] x) => (float16[2,4] y, int64[2] k) <float16[4,4] w> {
      a = MatMul (x, w)  y = Softmax <axis = -1> (a)  k = ArgMax <axis = 1, keepdims = 0> (y) }""",
    """<ir_version: 8, opset_import: ["" : 17]> sizes (float[n,c,h,w] x) => (float[n,m] y) {
      s = Shape (x)  z = Constant <value = int64[1] {0}> ()  b = Gather (s, z)
      o = Constant <value = int64[1] {-1}> ()  t = Concat <axis = 0> (b, o)  y = Reshape (x, t) }""",
    """<ir_version: 8, opset_import: ["" : 17]> text (string[n] x) => (string[n] y) { y = Identity (x) }""",
    """<ir_version: 8, opset_import: ["" : 17]> wide (double[3,5] x) => (double[3,2] y) <double[5,2] w> {
      y = MatMul (x, w) }""",
)
RECIPES = (
    """version: 1
seed: 3
shapes: {input: 1x3x224x224, other: 2x5}
data:
  calibration: {path: calibration.npz, samples: 200}
  evaluation: {path: evaluation.npz}
  preprocess: {layout: nhwc, resize: 256, crop: 224, mean: [127, 127, 127], std: [128, 128, 128]}
  metric: top1
engine: {onnxruntime: {threads: 2, spinning: false}}
load: {closed: {concurrency: 1}}
others: [{batch: 8}]
rungs:
  - {name: int8, stages: [quantize]}
  - {name: int8-fused, stages: [{quantize: {scheme: auto}}, fuse]}
  - {name: prune20-int8-fused, stages: [{prune: {ratio: 20%}}, quantize, fuse]}
gates:
  - latency: {p99: 50ms, reserve: 0ms, confidence: 95%}
  - accuracy: {max_drop: 1%, confidence: point}
limits: {seconds: 600, memory: 8GiB, measure: 60s}
registry: {uri: null, name: null}
""",
    "gates: [{latency: {p95: 150ms}}]\nload: {poisson: {rate: 200/s}}\n",
    "engine: {tensorrt: {devices: [a10g], precision: int8}}\ntarget: tensorrt\n",
)


@cache
def model(number: int) -> bytes:
    """Give a valid model, serialised; the first are those written here, all others drawn at random."""
    if number < len(_GRAPHS):
        return bytes(_filled(onnx.parser.parse_model(_GRAPHS[number])).SerializeToString())
    return bytes(random_graph(number).SerializeToString())


def some_model(rng: random.Random) -> onnx.ModelProto:
    """Draw one of the models."""
    written = rng.random() < _WRITTEN
    number = rng.randrange(len(_GRAPHS)) if written else len(_GRAPHS) + rng.randrange(_DRAWN)
    return onnx.load_from_string(model(number))


def samples(rng: random.Random) -> dict[str, np.ndarray]:
    """Draw samples of the model that `classifier` gives."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    n = rng.randrange(24, 48)
    return {"x": numbers.normal(size=(n, 6)).astype(np.float32), "label": numbers.integers(0, 4, n)}


def classifier() -> bytes:
    """Give a model with an input x of six numbers and four classes."""
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[batch,6] x) => (float[batch,4] y) <float[6,4] w> {
      y = MatMul (x, w) }"""
    return bytes(_filled(onnx.parser.parse_model(text)).SerializeToString())


def _filled(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Give weights numbers: the parser makes mere shapes of those without any."""
    rng = np.random.default_rng(len(proto.graph.node))
    for value in proto.graph.value_info:
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        array = np.abs(rng.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim])).astype(kind)
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
    del proto.graph.value_info[:]
    return proto


def external(proto: onnx.ModelProto, location: str) -> bytes:
    """Move the tensors of a model into one file, for which the bytes are given; they lie one behind the other."""
    data = b""
    for tensor in proto.graph.initializer:
        raw = numpy_helper.to_array(tensor)
        if tensor.data_type == TensorProto.STRING:
            continue
        blob = np.ascontiguousarray(raw).tobytes()
        tensor.CopyFrom(numpy_helper.from_array(raw, tensor.name))
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", len(data)), ("length", len(blob))):
            tensor.external_data.add(key=key, value=str(value))
        data += blob
    return data
