"""Structured pruning: whole channels cut out of a plain ONNX graph, without training code.

`groups` finds which channels go together (`rules` knows the operators), `cost` what they cost, `importance` in which
order they would go, `damage` what that loses, `choose` which go; `surgery` cuts them out, `reconstruct` repairs what is
left, and `account` says what became of them. Settings of pruning are fields of `Prune`.
"""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import astuple, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, Field

from compressor import graph, runtime
from compressor.errors import InputError, RungError
from compressor.records import Channels, Did, Model, Progress, Repaired, Shapes, Work
from compressor.samples import Samples
from compressor.schemes import Scheme
from compressor.stages.prune import account, cost, damage
from compressor.stages.prune.choose import Curve, Wish, check, chosen, share_gone
from compressor.stages.prune.groups import Coupled, Group, analyse
from compressor.stages.prune.moments import blas
from compressor.stages.prune.reconstruct import reconstruct
from compressor.stages.prune.surgery import shrunk, zeroed
from compressor.stages.supply import Supply
from compressor.units import Fraction

if TYPE_CHECKING:
    import onnx_ir as ir

_SAME_DB = 40.0
"""Between cutting and zeroing lies rounding, above 100 dB in float32, about 55 in float16; a wrong cut is below 20."""
_COMPARED = 2
_FORM = "2"
"""Part of the name of what is kept: raise it where curves are made in another way."""
_PROFILED = 4
"""Samples over which nodes are timed."""


class Prune(BaseModel, frozen=True, extra="forbid"):
    """Remove whole channels until about `ratio` of what `of` names is gone: layers become smaller, not sparse.

    Which layers lose how many follows from what the outputs lose by it; then the layers that are left are solved again
    for what the original gives, on the calibration samples, without labels.
    """

    open: ClassVar[bool] = False
    needs_evaluation: ClassVar[bool] = True
    """Nobody should prune a model without data that shows what it lost."""
    imports: ClassVar[tuple[str, ...]] = ("scipy.linalg", "scipy.sparse.csgraph", "threadpoolctl")

    ratio: Fraction = Field(gt=0)
    of: Literal["macs", "parameters", "channels", "latency"] = "macs"
    """What is counted: multiply-accumulates, parameters, the channels that can be removed, or the time that nodes take
    on this machine's CPU, as profiled in float."""
    multiple: int | None = Field(None, ge=1, le=1024)
    """Layers keep a multiple of so many channels; unset: on CPUs 8, with AVX-512 16, on GPUs 32 (for FP16 16 do)."""
    include: tuple[str, ...] = ()
    """Names of nodes, or patterns such as `layer3*`; if any, only channels that one of them makes are removed."""
    exclude: tuple[str, ...] = ()
    """Names or patterns of nodes whose channels stay."""
    repair: bool = True
    """Solve the layers behind what was cut again."""

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
        with blas(1):
            removed, gone = yield from self._removed(coupled, model, supply, static)
        yield Progress("cutting channels out")
        graph.save(cut := shrunk(coupled, removed), out)
        repaired = None
        if supply.steady:
            yield from _check(coupled, removed, supply.held_out, (model.path, out))
        if supply.steady and self.repair:
            with blas(1):
                better, repaired = yield from _repaired(coupled, removed, cut, supply)
            graph.save(better, out)
        models = graph.at_shapes(model, static), graph.open_model(out, static)
        counted = account.counted(coupled, removed, models, static)
        pruned = replace(counted, repaired=repaired, of=self.of, asked=self.ratio, gone=gone)
        made_up = supply.calibration.source.synthetic
        return Did(account.told(pruned), pruned=pruned, notes=self._notes(supply), uncalibrated=made_up)

    def _notes(self, supply: Supply) -> tuple[str, ...]:
        few = supply.steady and supply.held_out == supply.calibration
        noted = {_UNSTEADY: not supply.steady, _FEW: few, _TIMED: self.of == "latency"}
        return tuple(note for note, holds in noted.items() if holds)

    def _removed(
        self, coupled: Coupled, model: Model, supply: Supply, static: Shapes
    ) -> Work[tuple[frozenset[int], float]]:
        """Give the units that go, and the share of the cost that goes with them."""
        eligible, multiple = self._eligible(coupled), self.multiple or 1
        counted = yield from self._cost(coupled, model, supply, static)
        wish = Wish(self.ratio, multiple, self.of)
        check(coupled.groups, eligible, counted, wish)
        if supply.steady:
            curves = yield from self._measured(coupled, model, supply)
        else:
            curves = damage.plain(coupled, eligible, multiple, counted)
        removed = chosen(coupled.groups, curves, counted, wish)
        return removed, share_gone(coupled.groups, removed, counted)

    def _measured(self, coupled: Coupled, model: Model, supply: Supply) -> Work[dict[int, Curve]]:
        """Measure what groups are worth, or read what another rung has measured."""
        eligible = self._eligible(coupled)

        def learn(out: Path) -> Work[None]:
            curves = yield from damage.curves(coupled, eligible, supply.calibration, self.multiple or 1, model.macs)
            out.write_text(json.dumps({i: astuple(curve) for i, curve in curves.items()}))

        kept = yield from supply.learnt("curves", model.path, (_FORM, self.multiple, eligible), learn)
        return {int(i): Curve(*map(tuple, curve)) for i, curve in json.loads(kept.read_text()).items()}

    def _cost(self, coupled: Coupled, model: Model, supply: Supply, static: Shapes) -> Work[cost.Cost]:
        if self.of == "macs":
            return cost.macs(coupled, static)
        if self.of == "latency":
            return cost.latency(coupled, static, (yield from _node_ms(model, supply)))
        return cost.parameters(coupled) if self.of == "parameters" else cost.channels(coupled)

    def _eligible(self, coupled: Coupled) -> list[int]:
        """Give the places of the groups that the settings let shrink."""
        return [i for i, group in enumerate(coupled.groups) if self._may_shrink(group)]

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


def _node_ms(model: Model, supply: Supply) -> Work[dict[str, float]]:
    """Time nodes, or read what was found for another rung."""

    def learn(out: Path) -> Work[None]:
        yield Progress("time operators")
        out.write_text(json.dumps(dict(runtime.node_ms(model.path, tuple(islice(supply.held_out, _PROFILED))))))

    kept = yield from supply.learnt("times", model.path, (), learn)
    read: dict[str, float] = json.loads(kept.read_text())
    return read


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
        except RungError as error:  # such as outputs that are no longer finite, beside which all such are equal
            raise RungError(f"{_INCOMPARABLE}: {error}") from error
        try:
            sqnr_db = yield from runtime.compare(reference, out, islice(samples, _COMPARED))
        except RungError as error:  # such as an output of another shape
            raise RungError(f"the pruned model is not the model without these channels: {error}; {_WRONG}") from error
    for name, db in sqnr_db.items():
        if db < _SAME_DB:
            raise RungError(
                f"output {name!r} of the pruned model is not what the model computes without these channels ({db:.0f} "
                f"dB): {_WRONG}"
            )


def _repaired(
    coupled: Coupled, removed: frozenset[int], cut: ir.Model, supply: Supply
) -> Work[tuple[ir.Model, Repaired]]:
    """Give the smaller model repaired, or as it was cut where samples held out say that this did not help."""
    with tempfile.TemporaryDirectory() as folder:
        reference = damage.Reference(coupled.model, supply.held_out, Path(folder))
        before = reference.loss(cut)
        better, layers = yield from reconstruct(coupled, removed, cut, supply.calibration)
        after = reference.loss(better) if layers else before
    helped, held_out = after < before, supply.held_out != supply.calibration
    found = Repaired(layers, before, after, held_out) if helped else Repaired(0, before, before, held_out)
    return better if helped else cut, found


_INCOMPARABLE = (
    "with the weights of these channels set to 0 the model's outputs cannot be held against its own, so that the cut "
    "cannot be checked; exclude the layers before divisions, powers, logarithms and what finds places in the data"
)
_WRONG = "an operator was followed wrongly; exclude the layers around it, and report this as a bug"
_TIMED = "the times of nodes were measured for `of: latency`: another run may choose other channels"
_UNSTEADY = (
    "the outputs of this model do not repeat: the same share of all layers went, the cut was not checked by running, "
    "and nothing was repaired"
)
_FEW = "samples are too few to hold any out: what pruning loses is told by those that it was fitted to"
_QUANTIZED = (
    "the model is quantized already, and its scales belong to the channels that it has: prune the float model, "
    "quantize what comes of it"
)
