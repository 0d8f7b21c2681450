"""A plan: what a run would do, and about how long that takes.

What else is to be seen of a plan is a line in `_planned`.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor.console import out
from compressor.console.out import say, table, warn
from compressor.plan import Explained, Plan, explained
from compressor.plan.explained import Climbed, Step
from compressor.units import human_bytes, human_duration, human_ms


def plan(settled: Plan, *, as_json: bool = False) -> None:
    """Show what a run would do, and about how long that takes."""
    told = explained(settled)
    if as_json:
        out.json(told)
    else:
        table(("what", "settled as"), [(what, text) for what, text in _planned(told) if text])
        rows = [("baseline", "the original as it is", _minutes(told.minutes.baseline))]
        rows += [(rung.name, _stages(rung), _minutes(rung.minutes)) for rung in told.rungs]
        table(("rung", "stages", "about"), rows)
    warn(told.warnings)
    least, most = told.minutes.least, told.minutes.most
    say(
        f"estimate  {_minutes(least)} if {told.rungs[0].name} is enough, {_minutes(most)} if all rungs are climbed; "
        "right within a factor of about 2 on a machine like ours, and less where earlier runs made the same",
        wrap=True,
    )


def _planned(told: Explained) -> Iterator[tuple[str, str]]:
    macs = "" if told.macs is None else f", {told.macs:,} multiply-accumulates"
    sizes = f"{human_bytes(told.size_bytes)}, {told.parameters:,} parameters{macs}"
    yield "model", f"{told.model} ({sizes}; {human_ms(told.call_ms)} a call)"
    yield "shapes", ", ".join(f"{name} {dims}" for name, dims in told.shapes.items())
    yield "calibration", f"{told.calibration.source}, {told.calibration.samples} samples"
    yield "evaluation", _evaluation(told)
    yield "engine", f"{told.engine}, for {told.target}"
    yield "threads", f"{told.threads} of {told.cpus_usable} usable CPUs"
    yield "load", told.load
    yield "measured too", ", ".join(told.points)
    yield "gates", "; ".join(told.gates)
    yield "rungs", ", ".join(rung.name for rung in told.rungs)
    yield "champion", told.champion or ""
    yield "proved on", told.proved_on or ""
    yield "limits", ", ".join(f"{name} {value}" for name, value in told.limits.items())
    yield "registry", told.registry


def _evaluation(told: Explained) -> str:
    if told.evaluation is None:
        return "none: accuracy will be inconclusive"
    return f"{told.evaluation.source}, {told.evaluation.samples} samples, {told.metric}"


def _stages(rung: Climbed) -> str:
    engine = f" on {rung.engine}" if rung.engine else ""
    return "; ".join(map(_step, rung.stages)) + engine


def _step(step: Step) -> str:
    tried = f"the best of {step.ways} ways, or float" if step.ways else ""
    told = "; ".join(filter(None, (step.words, tried)))
    return f"{step.stage} ({told})" if told else step.stage


def _minutes(minutes: float) -> str:
    return human_duration(60 * minutes)
