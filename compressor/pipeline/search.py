"""The search for the best way of applying a stage: each is made, looked at on held-out samples, and timed.

What a way must be to be taken is decided in `pick`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from compressor import bench, gates, runtime, units
from compressor.bench.load import Closed
from compressor.engines import Onnxruntime
from compressor.errors import RungError
from compressor.isolation import Returned
from compressor.pipeline import timing, work
from compressor.pipeline.steps import Steps
from compressor.pipeline.timing import Spot
from compressor.pipeline.work import Given, Made
from compressor.records import Model, Speedup, Tried, Work
from compressor.stages import Stage

_BUDGET_S = 5.0
"""For one comparison with float; it ends as soon as it is clear which is faster."""
_CLEARLY = 1.05
"""A gain that is believed though the machine is too noisy to prove it; the rung is measured again anyway."""
_WITHIN_DB = 3.0
"""Ways that lose no more than this against the most exact one are as good: twice the noise power."""
_ENOUGH_DB = 25.0
"""From here on classifiers were seen to lose nothing: 98 % and more of their answers stay the same."""


@dataclass(frozen=True)
class Looked:
    """What a way is worth beside the model before it. `exact_db` is None where the machine's kernels are exact."""

    sqnr_db: float
    exact_db: float | None
    speedup: Speedup | None


@dataclass(frozen=True)
class Way:
    """A way that was made."""

    stage: Stage
    step: Returned[Made]
    looked: Looked


@dataclass(frozen=True)
class Outcome:
    """The way to take, None for leaving the model as it is, and what there is to say of all of them."""

    taken: Way | None = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Search:
    """Where and with what a search works: the model before the stage, the engine that will run what comes of it."""

    rung: str
    before: Model
    engine: Onnxruntime
    given: Given
    scratch: Path
    seed: int
    saturates: bool
    timed: bool  # the target is this machine
    small: bool  # some gate is on size, so that a smaller model wins if it is not slower


def search(steps: Steps, ways: Sequence[Stage], at: Search) -> Work[Outcome]:
    """Make and look at every way; a way that cannot be made is one that lost."""
    made: list[Way] = []
    failed: list[Tried] = []
    for number, stage in enumerate(ways):
        try:
            made.append((yield from _way(steps, stage, at, (number + 1, len(ways)))))
        except RungError as error:
            failed.append(Tried(work.settings(stage), taken=False, why=str(error)))
    return pick(made, failed, timed=at.timed, small=at.small)


def pick(made: Sequence[Way], failed: Sequence[Tried], *, timed: bool, small: bool = False) -> Outcome:
    """Take the fastest way of those that are exact enough, if it is faster than the model before it.

    Exact enough is what is within 3 dB of the most exact way, or above 25 dB. Where a `small` model is wanted, it need
    not be faster, only not slower. Where speed cannot be seen here, the first that is exact enough is taken.
    """
    best_db = max((way.looked.sqnr_db for way in made), default=0.0)
    good = [way for way in made if way.looked.sqnr_db >= min(best_db - _WITHIN_DB, _ENOUGH_DB)]
    winning = [way for way in good if not timed or _gains(way.looked.speedup, small=small)]
    taken = max(winning, key=_ratio) if timed and winning else next(iter(winning), None)
    return Outcome(taken, (*(_told(way, taken, good, best_db) for way in made), *failed))


def look(at: Search, now: Model, folder: Path) -> Work[Looked]:
    """Hold a way against the model before it on held-out samples: in outputs and, if it can be seen, in time."""
    samples, run = at.given.supply.held_out, at.given.run
    real = yield from _worst_db(at, now, exact=False)
    ideal = (yield from _worst_db(at, now, exact=True)) if at.saturates else None
    if not at.timed:
        return Looked(real, ideal, None)
    one, two = (
        work.build(at.engine, model, folder / name, run) for model, name in ((at.before, "before"), (now, "now"))
    )
    shape = {name: units.write_shape(value.shape) for name, value in next(iter(samples)).items()}
    experiment = bench.measure.Experiment(
        load=Closed(), targets=(), budget_s=_BUDGET_S, seed=at.seed, shape=shape, ratios=(1.0,)
    )
    (measured,) = yield from timing.timed((one, two), run, (Spot(experiment, samples),))
    return Looked(real, ideal, measured.speedup)


def _way(steps: Steps, stage: Stage, at: Search, place: tuple[int, int]) -> Work[Way]:
    number, ways = place
    name = work.name(stage)
    folder = at.scratch / f"{at.rung}-{name}-{number}"
    folder.mkdir(parents=True)
    step = f"{at.rung}: {name}, way {number} of {ways}"
    made = yield from steps.call(step, work.apply, stage, at.before, at.given, folder / "model.onnx")
    looked = yield from steps.call(f"{step}, look", look, at, made.value.model, folder, more_s=_BUDGET_S)
    return Way(stage.model_copy(update=dict(made.value.did.settled)), made, looked.value)


def _worst_db(at: Search, now: Model, *, exact: bool) -> Work[float]:
    feeds = islice(at.given.supply.held_out, work.COMPARED)
    found = yield from runtime.compare(at.before.path, now.path, feeds, exact=exact)
    return min(found.values(), default=runtime.IDENTICAL_DB)


def _gains(speedup: Speedup | None, *, small: bool = False) -> bool:
    if speedup is None:
        return False
    shown = gates.relation(speedup)
    if small and shown != "slower":
        return True
    return shown == "faster" or (shown == "undecided" and speedup.ratio >= _CLEARLY)


def _ratio(way: Way) -> float:
    return way.looked.speedup.ratio if way.looked.speedup else 0.0


def _told(way: Way, taken: Way | None, good: Sequence[Way], best_db: float) -> Tried:
    looked, speedup = way.looked, way.looked.speedup
    return Tried(
        settings=work.settings(way.stage),
        taken=way is taken,
        why=" and ".join(_why(way, taken, good, best_db)),
        size_bytes=way.step.value.model.size_bytes,
        sqnr_db=looked.sqnr_db,
        exact_db=looked.exact_db,
        ratio=speedup.ratio if speedup else None,
        low=speedup.low if speedup else None,
        high=speedup.high if speedup else None,
    )


def _why(way: Way, taken: Way | None, good: Sequence[Way], best_db: float) -> Iterator[str]:
    if way is taken:
        yield "the fastest that is exact enough" if way.looked.speedup else "the first that is exact enough"
        return
    if way not in good:
        yield f"not exact enough: {way.looked.sqnr_db:.1f} dB where another has {best_db:.1f}"
    if way.looked.speedup and not _gains(way.looked.speedup):
        yield "not faster than before"
    elif way in good:
        yield "slower than the one taken" if way.looked.speedup else "another that is exact enough comes first"


def said(outcome: Outcome) -> str:
    """Say why the model is left as it is."""
    timed = [tried for tried in outcome.tried if tried.ratio is not None]
    if not timed:
        reasons = "; ".join(dict.fromkeys(tried.why for tried in outcome.tried))
        return f"left float: no way of quantizing it works ({reasons})"
    best = max(timed, key=lambda tried: tried.ratio or 0.0)
    return (
        f"left float: INT8 does not pay here, the fastest of {len(outcome.tried)} ways is "
        f"{best.ratio:.3g}x [{best.low:.3g}, {best.high:.3g}] as fast"
    )


def with_outcome(made: Returned[Made], outcome: Outcome) -> Returned[Made]:
    """Give what was made of a model that is left as it is, in the words of the search."""
    did = replace(made.value.did, what=said(outcome))
    return replace(made, value=replace(made.value, did=did))
