"""Structured pruning: whole channels cut out of a plain ONNX graph, without training code.

`groups` finds which channels go together (`rules` knows the operators), `cost` what they cost, `importance` which
matter least, `choose` which go; `surgery` cuts them out, and
`account` says what became of them. Settings of pruning are fields of `Prune`.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from compressor import graph, runtime
from compressor.errors import InputError, RungError
from compressor.records import Channels, Did, Model, Progress, Shapes, Work
from compressor.samples import Samples
from compressor.schemes import Scheme
from compressor.stages.prune import account, cost, importance
from compressor.stages.prune.choose import Wish, chosen
from compressor.stages.prune.groups import Coupled, Group, analyse
from compressor.stages.prune.surgery import shrunk, zeroed
from compressor.stages.supply import Supply
from compressor.units import Fraction

_SAME_DB = 40.0
"""Between cutting and zeroing lies rounding, above 100 dB in float32, about 55 in float16; a wrong cut is below 20."""
_COMPARED = 2


class Prune(BaseModel, frozen=True, extra="forbid"):
    """Remove whole channels until about `ratio` of what `of` names is gone: layers become smaller, not sparse."""

    open: ClassVar[bool] = False
    needs_evaluation: ClassVar[bool] = True
    """Nobody should prune a model without data that shows what it lost."""

    ratio: Fraction = Field(gt=0)
    of: Literal["macs", "parameters", "channels"] = "macs"
    """What is counted: multiply-accumulates, parameters, or the channels that can be removed."""
    multiple: int | None = Field(None, ge=1, le=1024)
    """Layers keep a multiple of so many channels; unset: on CPUs 8, with AVX-512 16, on GPUs 32 (for FP16 16 do)."""
    include: tuple[str, ...] = ()
    """Names or patterns (`layer3.*`) of nodes; if any, only channels that one of them makes are removed."""
    exclude: tuple[str, ...] = ()
    """Names or patterns of nodes whose channels stay."""

    def resolve(self, _model: Path, scheme: Scheme) -> Prune:
        """Settle by the target to what channels are rounded."""
        return self.model_copy(update={"multiple": self.multiple or scheme.channels})

    def check(self, model: Path) -> None:
        """Make sure that a model that no stage has changed has the nodes that the settings name.

        Raises:
            InputError: A name or pattern in `include` or `exclude` fits no node.
        """
        if not (*self.include, *self.exclude):
            return
        with tempfile.TemporaryDirectory() as folder:
            graph.normalise(model, normalised := Path(folder) / "model.onnx")
            unknown = self._unknown(node.name for node in graph.load(normalised).graph)
        if unknown:
            raise InputError(unknown)

    def apply(self, model: Model, supply: Supply, out: Path) -> Work[Did]:
        """Write the model without the channels to `out`.

        Raises:
            RungError: The model is quantized, lacks a node that is named, or cannot lose as much.
        """
        yield Progress("finding which channels go together")
        if graph.is_quantized(model.path):
            raise RungError(_QUANTIZED)
        static = {name: array.shape for name, array in next(iter(supply.calibration)).items()}
        coupled = analyse(graph.load(model.path))
        if unknown := self._unknown(node.name for node in coupled.model.graph):
            raise RungError(unknown)
        removed = self._removed(coupled, static)
        yield Progress("cutting channels out")
        graph.save(shrunk(coupled, removed), out)
        notes: tuple[str, ...] = ("the cut was not checked by running: the outputs of this model do not repeat",)
        if supply.steady:
            yield from _check(coupled, removed, supply.held_out, (model.path, out))
            notes = ()
        models = graph.at_shapes(model, static), graph.open_model(out, static)
        pruned = account.counted(coupled, removed, models, static)
        return Did(account.told(pruned), pruned=pruned, notes=notes)

    def _removed(self, coupled: Coupled, static: Shapes) -> frozenset[int]:
        eligible = tuple((i, group) for i, group in enumerate(coupled.groups) if self._may_shrink(group))
        wish = Wish(self.ratio, self.multiple or 1, self.of)
        return chosen(eligible, importance.by_norm(coupled), self._cost(coupled, static), wish)

    def _cost(self, coupled: Coupled, static: Shapes) -> cost.Cost:
        if self.of == "macs":
            return cost.macs(coupled, static)
        return cost.parameters(coupled) if self.of == "parameters" else cost.channels(coupled)

    def _may_shrink(self, group: Group) -> bool:
        included = not self.include or _fits(group.makers, self.include)
        return included and not _fits(group.makers, self.exclude)

    def _unknown(self, nodes: Iterable[str]) -> str:
        """Say which name or pattern fits no node; nothing if all do."""
        names = list(nodes)
        for setting in ("include", "exclude"):
            for pattern in getattr(self, setting):
                if not _fits(names, (pattern,)):
                    close = ", ".join(map(repr, difflib.get_close_matches(pattern, names, n=3, cutoff=0)))
                    return f"prune.{setting}: {pattern!r} fits the name of no node; the closest are {close}"
        return ""


def removable(path: Path, static: Shapes | None) -> tuple[Channels, ...]:
    """List the channels of a model in normal form that can be removed, in the order of the graph, then those that stay.

    Raises:
        RungError: The model is quantized.
    """
    if graph.is_quantized(path):
        raise RungError(_QUANTIZED)
    coupled = analyse(graph.load(path))
    return account.channels(coupled, None, static)


def _fits(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _check(coupled: Coupled, removed: frozenset[int], samples: Samples, paths: tuple[Path, Path]) -> Work[None]:
    """Hold the smaller model against the same model with the slices set to 0: a rule that errs must not go unseen."""
    original, out = paths
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "zeroed.onnx"
        graph.save(zeroed(coupled, removed), reference)
        try:
            yield from runtime.compare(original, reference, islice(samples, _COMPARED))
        except RungError as error:  # the outputs are no longer finite, beside which all that is not finite is equal
            raise RungError(_NOT_FINITE) from error
        sqnr_db = yield from runtime.compare(reference, out, islice(samples, _COMPARED))
    for name, db in sqnr_db.items():
        if db < _SAME_DB:
            raise RungError(
                f"output {name!r} of the pruned model is not what the model computes without these channels ({db:.0f} "
                "dB): an operator was followed wrongly; exclude the layers around it, and report this as a bug"
            )


_NOT_FINITE = (
    "with the weights of these channels set to 0 the model computes no finite numbers, so that the cut cannot be "
    "checked; exclude the layers before divisions, powers and logarithms"
)
_QUANTIZED = (
    "the model is quantized already, and its scales belong to the channels that it has: prune the float model, "
    "quantize what comes of it"
)
