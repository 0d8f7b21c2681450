"""ONNX files: open, check, describe, normalise, save. The door to onnx and onnx_ir.

`check` refuses what is no usable model, `files` reads and writes, `count` counts in an open graph, `shapes` infers,
`facts` answers questions about a file, `normalise` (with `fold`) rewrites it without changing what it computes, `probe`
makes a model for measuring a machine.
Add a question to `facts`.
"""

from __future__ import annotations

from compressor.graph.facts import (
    Summary,
    at_shapes,
    has_products,
    index_limits,
    is_mostly_products,
    is_quantized,
    looks_like_transformer,
    open_model,
    summary,
)
from compressor.graph.files import load, parts, save, sha256, with_metadata
from compressor.graph.inherit import inherit
from compressor.graph.normalise import normalise
from compressor.graph.probe import probe
from compressor.graph.quantized import holds_qdq, quantized_share
from compressor.graph.serial import deserialised, serialised
from compressor.graph.shapes import inferred

__all__ = [
    "Summary",
    "at_shapes",
    "deserialised",
    "has_products",
    "holds_qdq",
    "index_limits",
    "inferred",
    "inherit",
    "is_mostly_products",
    "is_quantized",
    "load",
    "looks_like_transformer",
    "normalise",
    "open_model",
    "parts",
    "probe",
    "quantized_share",
    "save",
    "serialised",
    "sha256",
    "summary",
    "with_metadata",
]
