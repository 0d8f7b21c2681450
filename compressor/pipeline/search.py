"""The search for the best way of applying a stage: each is made, looked at on held-out samples, and timed.

What a way must be to be taken is decided in `pick`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from compressor import bench, gates, runtime, units
from compressor.bench.load import Closed
from compressor.engines import Onnxruntime
from compressor.errors import CutOffError, RungError
from compressor.pipeline import timing, work
from compressor.pipeline.built import Built
from compressor.pipeline.reuse import Keep, Step
from compressor.pipeline.timing import Spot
from compressor.pipeline.work import Given
from compressor.records import MINIMUM_EFFECT, Model, Speedup, Tried, Work
from compressor.stages import Stage

_BUDGET_S = 5.0
"""For one comparison with float; it ends as soon as it is clear which is faster."""
_CLEARLY = 1.05
"""A gain that is believed though the machine is too noisy to prove it; the rung is measured again anyway."""
_WITHIN_DB = 3.0
"""Ways that lose no more than this against the most exact one are as good: twice the noise power."""
_ENOUGH_DB = 20.0
"""Here classifiers lose nothing: efficientnet_lite0 lost nothing from 18.7 dB on, 1.4 points at 13.4 and 4 at 8 dB; a
sentence encoder lost 0.1 at 21 dB."""


_ROUGH = "not exact enough"
_LEAST_DB = 10.0
"""Below it the noise has more than a tenth of the signal's power: no way is taken, however well it compares."""


@dataclass(frozen=True)
class Search:
    """Where and with what a search works: the model before the stage, the engine that will run what comes of it.

    `timed`: the target is this machine. `small`: some gate is on size, so that what is smaller need not be faster.
    """

    rung: str
    before: Model
    engine: Onnxruntime
    given: Given
    scratch: Path
    seed: int
    saturates: bool
    timed: bool
    small: bool

    @property
    def depends_on(self) -> tuple[object, ...]:
        """What decides the choice besides the model, the samples, the machine and the ways themselves."""
        return self.engine.model_dump(), self.seed, self.saturates, self.timed, self.small


@dataclass(frozen=True)
class Looked:
    """What a way is worth beside the model before it: the SQNR of its worst output, and its time.

    `sqnr_db` is None where the model does not even agree with itself; `exact_db`, with exact arithmetic, where kernels
    are exact.
    """

    sqnr_db: float | None
    exact_db: float | None
    speedup: Speedup | None


@dataclass(frozen=True)
class Way:
    """A way that was made."""

    stage: Stage
    step: Step
    looked: Looked


@dataclass(frozen=True)
class Outcome:
    """The way to take, None for leaving the model as it is, and what there is to say of all of them.

    `lasting`: none was cut off, so that another search would find the same.
    """

    taken: Way | None = None
    tried: tuple[Tried, ...] = ()
    lasting: bool = True


def searched(keep: Keep, ways: Sequence[Stage], at: Search) -> Work[Outcome]:
    """Make and look at every way; one that cannot be made has lost."""
    found: list[Way | Tried] = []
    lasting = True
    for number, stage in enumerate(ways, 1):
        try:
            found.append((yield from _way(keep, stage, at, f"{work.name(stage)}, way {number} of {len(ways)}")))
        except RungError as error:
            lasting = lasting and not isinstance(error, CutOffError)
            found.append(Tried(work.settings(stage), taken=False, why=str(error)))
    return replace(pick(found, timed=at.timed, small=at.small), lasting=lasting)


def pick(found: Sequence[Way | Tried], *, timed: bool, small: bool = False) -> Outcome:
    """Take the fastest way of those that gain and are exact enough.

    One gains if it is faster than the model before it or, where a `small` model is wanted, not slower. Exact enough is
    what is at 20 dB or above, or within 3 dB of the most exact that gains and not below 10 dB. Of those less than 2 %
    slower than the fastest, the most exact is taken; where speed cannot be seen here, the first that is exact enough.
    """
    made = [way for way in found if isinstance(way, Way)]
    gaining = [way for way in made if not timed or _gains(way.looked.speedup, small=small)]
    least_db = max(_LEAST_DB, min(_ENOUGH_DB, max(map(_db, gaining), default=0.0) - _WITHIN_DB))
    good = [way for way in gaining if _db(way) >= least_db]
    taken = _fastest(good) if timed and good else next(iter(good), None)
    told = (way if isinstance(way, Tried) else _told(way, _why(way, taken, gaining, least_db)) for way in found)
    return Outcome(taken, tuple(replace(one, taken=way is taken) for one, way in zip(told, found, strict=True)))


def left(made: Step, outcome: Outcome) -> Step:
    """Give what was made where no way was taken, with the reason."""
    timed = [tried for tried in outcome.tried if tried.ratio is not None]
    if rough := [tried for tried in timed if tried.why.startswith(_ROUGH)]:
        what = f"{len(rough)} of {len(outcome.tried)} ways of quantizing are faster, and none is exact enough"
    elif timed:
        best = max(timed, key=lambda tried: tried.ratio or 0.0)
        shown = f"{best.ratio:.3g}x [{best.low:.3g}, {best.high:.3g}]"
        what = f"the fastest of {len(outcome.tried)} ways of quantizing is {shown} as fast as float"
    else:
        reasons = "; ".join(dict.fromkeys(tried.why for tried in outcome.tried))
        what = f"no way of quantizing works ({reasons})"
    did = replace(made.made.did, what=f"left float: {what}")
    return replace(made, made=replace(made.made, did=did), tried=outcome.tried, lasting=outcome.lasting)


def look(at: Search, now: Model, folder: Path) -> Work[Looked]:
    """Hold a way against the model before it on held-out samples: in outputs and, if it can be seen here, in time."""
    real = yield from _worst_db(at, now, exact=not at.timed)
    if not at.timed:
        return Looked(real, None, None)
    ideal = (yield from _worst_db(at, now, exact=True)) if at.saturates else None
    return Looked(real, ideal, (yield from _timed(at, now, folder)))


def _timed(at: Search, now: Model, folder: Path) -> Work[Speedup | None]:
    samples = at.given.supply.held_out
    pair = (
        Built(at.engine, at.engine.build(at.before, folder / "before", folder)),
        Built(at.engine, at.engine.build(now, folder / "now", folder)),
    )
    shape = {name: units.write_shape(value.shape) for name, value in next(iter(samples)).items()}
    experiment = bench.measure.Experiment(
        load=Closed(), targets=(), budget_s=_BUDGET_S, seed=at.seed, shape=shape, ratios=(1.0,)
    )
    (measured,) = yield from timing.timed(pair, folder, (Spot(experiment, samples),))
    for name in ("before", "now"):  # copies of what is kept elsewhere
        shutil.rmtree(folder / name)
    return measured.speedup


def _way(keep: Keep, stage: Stage, at: Search, name: str) -> Work[Way]:
    folder = at.scratch / f"{at.rung}-{name.replace(' ', '-')}"
    folder.mkdir(parents=True)
    step = yield from keep.apply(f"{at.rung}: {name}", stage, at.before)
    arguments, more_s = (at, step.made.model, folder), _BUDGET_S
    looked = yield from keep.steps.call(f"{at.rung}: {name}, look", look, *arguments, more_s=more_s)
    return Way(type(stage).model_validate(step.settings), step, looked.value)


def _worst_db(at: Search, now: Model, *, exact: bool) -> Work[float | None]:
    supply = at.given.supply
    if not supply.steady:
        return None
    return (yield from runtime.worst_db(at.before.path, now.path, islice(supply.held_out, work.COMPARED), exact=exact))


def _gains(speedup: Speedup | None, *, small: bool) -> bool:
    if speedup is None:
        return False
    shown = gates.relation(speedup)
    if small and shown != "slower":
        return True
    return shown == "faster" or (shown == "undecided" and speedup.ratio >= _CLEARLY)


def _fastest(ways: Sequence[Way]) -> Way:
    """Give the fastest way; of those as fast but for the least difference that counts, the most exact."""
    least = max(map(_ratio, ways)) / MINIMUM_EFFECT
    return max((way for way in ways if _ratio(way) >= least), key=_db)


def _db(way: Way) -> float:
    return runtime.IDENTICAL_DB if way.looked.sqnr_db is None else way.looked.sqnr_db


def _ratio(way: Way) -> float:
    return way.looked.speedup.ratio if way.looked.speedup else 0.0


def _why(way: Way, taken: Way | None, gaining: Sequence[Way], least_db: float) -> str:
    timed = way.looked.speedup is not None
    if way is taken:
        return "the fastest that is exact enough" if timed else "the first that is exact enough"
    if way not in gaining:
        return "not faster than before"
    if _db(way) < least_db:
        return f"{_ROUGH}: {_db(way):.1f} dB, where {least_db:.1f} dB is the least"
    return "slower, or as fast and less exact" if timed else "another that is exact enough comes first"


def _told(way: Way, why: str) -> Tried:
    looked, speedup = way.looked, way.looked.speedup
    return Tried(
        settings=work.settings(way.stage),
        taken=False,
        why=why,
        size_bytes=way.step.made.model.size_bytes,
        sqnr_db=looked.sqnr_db,
        exact_db=looked.exact_db,
        ratio=speedup.ratio if speedup else None,
        low=speedup.low if speedup else None,
        high=speedup.high if speedup else None,
    )
