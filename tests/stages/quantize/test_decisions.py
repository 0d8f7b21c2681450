from __future__ import annotations

import onnx

from compressor.stages.quantize.decisions import undo_rounding

CONSTANTS = "<float s = {0.1}, uint8 z = {0}>"


def read(text: str, operator: str) -> list[str]:
    """Give what the node of an operator reads once it may decide by what was."""
    graph = onnx.parser.parse_graph(text)
    undo_rounding(graph)
    return list(next(node.input for node in graph.node if node.op_type == operator))


def test_a_comparison_reads_the_input_that_a_product_reads_rounded() -> None:
    text = f"""g (float[1,4] x, float[4,4] W, float[1] t) => (float[1,4] y, bool[1,4] b) {CONSTANTS}
    {{ q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = MatMul(d, W)  b = Greater(d, t) }}"""

    assert read(text, "Greater") == ["x", "t"]
    assert read(text, "MatMul") == ["d", "W"], "it computes"


def test_what_an_integer_kernel_gives_is_read_rounded() -> None:
    text = f"""g (float[1,4] x, float[4,4] W, float[1] t) => (float[1,4] y, bool[1,4] b) {CONSTANTS}
    {{ q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  m = MatMul(d, W)
       r = QuantizeLinear(m, s, z)  e = DequantizeLinear(r, s, z)  y = MatMul(e, W)  b = Greater(e, t) }}"""

    assert read(text, "Greater") == ["e", "t"]


def test_a_pair_that_only_decisions_read_is_theirs() -> None:
    text = f"""g (float[1,4] x) => (int64[1,1] k) {CONSTANTS}
    {{ q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  k = ArgMax <axis: int = 1> (d) }}"""

    assert read(text, "ArgMax") == ["d"], "ONNX Runtime makes one integer node of the three"


def test_a_constant_that_is_stored_in_8_bits_has_no_tensor_before_it() -> None:
    text = """g (float[1,4] x) => (float[1,4] y, bool[4] b) <float s = {0.1}, uint8[4] w = {1, 2, 3, 4}>
    { d = DequantizeLinear(w, s)  y = Mul(x, d)  b = Greater(d, s) }"""

    assert read(text, "Greater") == ["d", "s"]
