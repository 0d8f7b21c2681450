"""The ways of quantizing a model that are worth a look on a kind of machine.

Another way is a line in `ways`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from compressor import graph
from compressor.schemes import Scheme

Settings = Mapping[str, object]
"""Values for fields of `Quantize`."""

_STATIC: tuple[Settings, ...] = (
    {"scheme": "static", "backend": "onnxruntime", "operators": "core"},
    {"scheme": "static", "backend": "onnxruntime", "operators": "all"},
    {"scheme": "static", "backend": "nncf"},
)
_DYNAMIC: Settings = {"scheme": "dynamic", "backend": "onnxruntime"}
_WEIGHTS: Settings = {"scheme": "weights", "backend": "onnxruntime"}


def ways(model: Path, scheme: Scheme) -> Iterator[Settings]:
    """Give the ways, the one that usually wins first.

    Dynamic and weights-only INT8 have no kernels for Conv worth using, so they are for models whose weights are mostly
    of matrix products: transformers, above all, where they win because activations have outliers. Where the CPU's
    kernels saturate, weights of 7 bits avoid that at the cost of accuracy; static INT8 is tried with 8 bits too, of
    which the layers that saturate get unsigned weights.
    """
    if scheme.engine != "cpu":
        yield {"scheme": "static", "backend": "onnxruntime"}
        yield {"scheme": "static", "backend": "nncf"}
        return
    products = graph.is_mostly_products(model)
    seven: Settings = {"reduce_range": True} if scheme.saturates else {}
    if products:
        yield {**_DYNAMIC, **seven}
    for way in _STATIC:
        yield way
        if seven and way.get("operators") == "core":
            yield {**way, **seven}
    if products:
        yield _WEIGHTS
