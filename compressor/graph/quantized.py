"""How much of a file is quantized, counted rather than believed.

Add another count of what a quantizer left behind here.
"""

from __future__ import annotations

from pathlib import Path

from compressor.graph import count, files

_INTEGERS = frozenset({"INT8", "UINT8", "INT4", "UINT4"})
_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
_MATRIX = 2  # scales, zero points and biases have fewer axes


def holds_qdq(path: Path) -> bool:
    """Tell whether the file spells its quantization as Q/DQ nodes, which can be emulated exactly in float."""
    return any(node.op_type in _QDQ for node in count.nodes(files.load(path)))


def quantized_share(path: Path) -> float:
    """Give the share of the weights, by elements, that are stored as integers of 8 bits or less; 0 to 1."""
    sizes = {True: 0, False: 0}
    for _, tensor in count.constants(files.load(path)):
        kind = tensor.dtype.name
        if len(tensor.shape) >= _MATRIX and kind in _INTEGERS | count.FLOATS:
            sizes[kind in _INTEGERS] += tensor.size
    return sizes[True] / (sum(sizes.values()) or 1)
