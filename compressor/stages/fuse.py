"""Simplification and constant folding through onnxsim; what makes the file larger or its outputs differ is undone.

What ONNX Runtime fuses at load is counted by the pipeline (`runtime.audit`), not done here: a graph that it saves
after fusing can be read by nobody else.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from compressor import graph, runtime
from compressor.errors import InputError, RungError
from compressor.records import Did, Model, Work
from compressor.samples import Samples
from compressor.units import human_bytes

if TYPE_CHECKING:
    import onnx

_EQUAL_DB = 40.0
"""Folding changes rounding, which moves a few values of an INT8 model by one step; a wrong graph is below 20 dB."""
_FOLD_LIMIT = "64KB"
"""Largest tensor that constant folding may create."""
_LARGEST_BYTES = 1_800_000_000
_COMPARED = 8


class Fuse(BaseModel, frozen=True, extra="forbid"):
    """Remove what the graph computes for nothing and merge what can be merged for every reader of the file."""

    needs_evaluation: ClassVar[bool] = False

    def resolve(self, _model: Path, *, saturates: bool) -> Fuse:  # noqa: ARG002 - nothing here depends on it
        """Nothing depends on the model or the machine."""
        return self

    def apply(self, model: Model, samples: Samples, out: Path) -> Work[Did]:
        """Write the simplified model to `out`, or the model as it is where simplifying would harm it."""
        import onnx

        if model.size_bytes > _LARGEST_BYTES:
            graph.save(graph.load(model.path), out)
            return Did("left as it is: onnxsim takes no model above 2 GB", changed=False)
        before = onnx.load(model.path)
        after, refused = _simplified(before)
        if refused is None:
            graph.save(after, out)
            refused = yield from _harm(model, samples, out)
        gone = _gone(before, after)
        if refused or not gone:
            graph.save(before, out)
            return Did(f"left as it is: {refused or 'nothing to simplify'}", changed=False)
        return Did(f"{len(before.graph.node)} nodes became {len(after.graph.node)} (gone: {gone})")


def _simplified(before: onnx.ModelProto) -> tuple[onnx.ModelProto, str | None]:
    import onnxsim

    try:
        after, _ = onnxsim.simplify(before, tensor_size_threshold=_FOLD_LIMIT)
    except Exception as error:  # noqa: BLE001 - the door to onnxsim: its errors have no class of their own
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return before, f"onnxsim refused the graph ({first[:200]})"
    return graph.inherit(before, _undescribed(before, after)), None


def _undescribed(before: onnx.ModelProto, after: onnx.ModelProto) -> onnx.ModelProto:
    """Give `after` without what onnxsim 0.8 notes in it: the shapes it inferred, and in the metadata what it did."""
    import onnx

    declared = {value.name for value in before.graph.value_info}
    result = onnx.ModelProto()
    result.CopyFrom(after)
    del result.metadata_props[:], result.graph.value_info[:]
    result.graph.value_info.extend(value for value in after.graph.value_info if value.name in declared)
    return result


def _harm(model: Model, samples: Samples, out: Path) -> Work[str | None]:
    """Say what simplifying broke; None when nothing."""
    try:
        now = graph.open_model(out)
    except InputError as error:
        return f"simplified, it would be no usable model ({error})"
    if now.size_bytes > model.size_bytes:
        return f"simplified, the file would grow from {model.size_bytes} to {now.size_bytes} bytes"
    if (now.inputs, now.outputs) != (model.inputs, model.outputs):
        return "simplified, its inputs or outputs would change"
    try:
        sqnr_db = yield from runtime.compare(model.path, out, islice(samples, _COMPARED))
    except RungError as error:
        return f"simplified, {error}"
    worst_db = min(sqnr_db.values(), default=_EQUAL_DB)
    return None if worst_db >= _EQUAL_DB else f"simplified, its outputs would differ ({worst_db:.0f} dB)"


def _gone(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """List the nodes that are no longer there, and the bytes of constants; empty when all are."""
    kinds = Counter(node.op_type for node in before.graph.node)
    kinds.subtract(node.op_type for node in after.graph.node)
    nodes = [f"{count} {kind}" for kind, count in sorted(kinds.items()) if count > 0]
    saved_bytes = _constant_bytes(before) - _constant_bytes(after)
    return ", ".join([*nodes, *([f"{human_bytes(saved_bytes)} of constants"] if saved_bytes > 0 else [])])


def _constant_bytes(model: onnx.ModelProto) -> int:
    return sum(tensor.ByteSize() for tensor in model.graph.initializer)
