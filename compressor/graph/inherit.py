"""What tools that rewrite a model drop, given back from the model they were given.

Another thing that must survive a vendor's tool is a line in `inherit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_FIELDS = ("producer_name", "producer_version", "domain", "model_version", "doc_string")


def inherit(original: onnx.ModelProto, made: onnx.ModelProto) -> onnx.ModelProto:
    """Give `made` with the original's metadata, producer, version, graph name, and declared inputs and outputs.

    Inputs and outputs are given back whole, dimension names and order included; metadata that `made` adds is kept.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(made)
    for name in _FIELDS:
        if original.HasField(name):
            setattr(result, name, getattr(original, name))
    added = {p.key: p.value for p in made.metadata_props} | {p.key: p.value for p in original.metadata_props}
    onnx.helper.set_model_props(result, added)
    result.graph.name = original.graph.name
    for values, wanted in ((result.graph.input, original.graph.input), (result.graph.output, original.graph.output)):
        del values[:]
        values.extend(wanted)
    return result
