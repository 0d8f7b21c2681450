"""Simplification and constant folding through onnxsim, and the fusions of transformers; what harms is undone.

What ONNX Runtime fuses at load is counted by the pipeline (`runtime.audit`), not done here: a graph that it saves
after fusing can be read by nobody else. Another way of simplifying is a step of `Fuse.apply`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from compressor import graph, runtime
from compressor.errors import InputError, RungError
from compressor.records import Did, Model, Work
from compressor.samples import Samples
from compressor.schemes import Scheme
from compressor.stages.supply import Supply
from compressor.units import human_bytes

if TYPE_CHECKING:
    import onnx

_EQUAL_DB = 40.0
"""Folding changes rounding, which moves a few values of an INT8 model by one step; a wrong graph is below 20 dB."""
_FOLD_LIMIT = "64KB"
"""Largest tensor that constant folding may create."""
_NOT_PORTABLE = ("fuse_attention", "fuse_gqa", "fuse_rope")
"""What onnxsim 0.8 would merge into operators that only ONNX Runtime reads."""
_LARGEST_BYTES = 1_800_000_000
_COMPARED = 8


class Fuse(BaseModel, frozen=True, extra="forbid"):
    """Remove what the graph computes for nothing and merge what can be merged for every reader of the file.

    `transformer` merges attention, normalisations and activations of a transformer into operators that only ONNX
    Runtime reads. Left open, that is done for CUDA alone: on a CPU, ONNX Runtime 1.32 ran a float MiniLM no faster for
    it, one of dynamic INT8 a tenth slower, and a float ViT a seventh.
    """

    open: ClassVar[bool] = False
    needs_evaluation: ClassVar[bool] = False
    imports: ClassVar[tuple[str, ...]] = ("onnxsim",)

    transformer: bool | None = None

    def resolve(self, _model: Path, scheme: Scheme) -> Fuse:
        """Settle by the target whether transformers are fused.

        Raises:
            InputError: They are to be, for TensorRT, which cannot read what comes of it.
        """
        if self.transformer and scheme.engine == "tensorrt":
            raise InputError("fuse: transformer is true, but TensorRT reads no operators of ONNX Runtime; leave it out")
        wanted = scheme.engine == "cuda" if self.transformer is None else self.transformer
        return self.model_copy(update={"transformer": wanted})

    def apply(self, model: Model, supply: Supply, out: Path) -> Work[Did]:
        """Write the simplified model to `out`, or the model as it is where simplifying would harm it."""
        if model.size_bytes > _LARGEST_BYTES:
            graph.save(graph.load(model.path), out)
            return Did("left as it is: onnxsim takes no model above 2 GB", changed=False)
        if not self.transformer:
            return (yield from _simplify(model, model.path, supply.held_out, out))
        with tempfile.TemporaryDirectory() as folder:
            fused = Path(folder) / "fused.onnx"
            first = yield from _fuse_transformer(model, supply.held_out, fused)
            then = yield from _simplify(model, fused if first.changed else model.path, supply.held_out, out)
        return Did(f"{first.what}; then {then.what}", changed=first.changed or then.changed)


def _fuse_transformer(model: Model, samples: Samples, out: Path) -> Work[Did]:
    """Fuse before anything else: attention is no longer recognised in what onnxsim makes of it."""
    if not graph.looks_like_transformer(model.path):
        return Did("no transformer to fuse", changed=False)
    try:
        made = runtime.fuse_transformer(model.path, out)
        harm = (yield from _harm(model, samples, out)) if made else "nothing of it fuses"
    except RungError as error:
        harm = str(error)
    if harm:
        return Did(f"transformer not fused: {harm}", changed=False)
    return Did(f"fused into {', '.join(f'{n} {kind}' for kind, n in made.items())}: only ONNX Runtime reads the file")


def _simplify(model: Model, start: Path, samples: Samples, out: Path) -> Work[Did]:
    import onnx

    before = onnx.load(start)
    after, refused = _simplified(before)
    if refused is None:
        graph.save(after, out)
        harm = yield from _harm(model, samples, out)
        refused = harm and f"simplified, {harm}"
    gone = _gone(before, after)
    if refused or not gone:
        graph.save(before, out)
        return Did(f"left as it is: {refused or 'nothing to simplify'}", changed=False)
    return Did(f"{len(before.graph.node)} nodes became {len(after.graph.node)} (gone: {gone})")


def _simplified(before: onnx.ModelProto) -> tuple[onnx.ModelProto, str | None]:
    import onnxsim

    try:
        after, _ = onnxsim.simplify(before, tensor_size_threshold=_FOLD_LIMIT, skipped_optimizers=list(_NOT_PORTABLE))
    except Exception as error:  # noqa: BLE001 - the door to onnxsim: its errors have no class of their own
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return before, f"onnxsim refused the graph ({first[:200]})"
    if foreign := sorted(_domains(after) - _domains(before)):
        return before, f"onnxsim put in operators of {', '.join(foreign)}, which other readers lack"
    return graph.inherit(before, _undescribed(before, after)), None


def _domains(model: onnx.ModelProto) -> set[str]:
    return {node.domain for node in model.graph.node} - {"", "ai.onnx"}


def _undescribed(before: onnx.ModelProto, after: onnx.ModelProto) -> onnx.ModelProto:
    """Give `after` without what onnxsim 0.8 notes in it: the shapes it inferred, and in the metadata what it did."""
    import onnx

    declared = {value.name for value in before.graph.value_info}
    result = onnx.ModelProto()
    result.CopyFrom(after)
    del result.metadata_props[:], result.graph.value_info[:]
    result.graph.value_info.extend(value for value in after.graph.value_info if value.name in declared)
    return result


def _harm(model: Model, samples: Samples, made: Path) -> Work[str | None]:
    """Say what became worse; None when nothing did."""
    try:
        now = graph.open_model(made)
    except InputError as error:
        return f"it would be no usable model ({error})"
    if now.size_bytes > model.size_bytes:
        return f"the file would grow from {model.size_bytes} to {now.size_bytes} bytes"
    if (now.inputs, now.outputs) != (model.inputs, model.outputs):
        return "its inputs or outputs would change"
    try:
        sqnr_db = yield from runtime.compare(model.path, made, islice(samples, _COMPARED))
    except RungError as error:
        return str(error)
    worst_db = min(sqnr_db.values(), default=_EQUAL_DB)
    return None if worst_db >= _EQUAL_DB else f"its outputs would differ ({worst_db:.0f} dB)"


def _gone(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """List the nodes that are no longer there, and the bytes of constants; empty when all are."""
    kinds = Counter(node.op_type for node in before.graph.node)
    kinds.subtract(node.op_type for node in after.graph.node)
    nodes = [f"{count} {kind}" for kind, count in sorted(kinds.items()) if count > 0]
    saved_bytes = _constant_bytes(before) - _constant_bytes(after)
    return ", ".join([*nodes, *([f"{human_bytes(saved_bytes)} of constants"] if saved_bytes > 0 else [])])


def _constant_bytes(model: onnx.ModelProto) -> int:
    return sum(tensor.ByteSize() for tensor in model.graph.initializer)
