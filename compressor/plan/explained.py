"""A plan in words and plain values: what `recipe explain` and `run --dry-run` show, for people and for programs.

What else a reader wants to know before a run is a field of `Explained`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from compressor.gates import Gate
from compressor.grammar import key
from compressor.plan.estimate import estimated
from compressor.plan.make import Plan
from compressor.recipe import Rung
from compressor.registry import public
from compressor.samples import Samples
from compressor.stages import Stage
from compressor.units import write_shape

Settings = Mapping[str, object]


@dataclass(frozen=True)
class Step:
    """A stage with all that is settled of it, and in words what of that is no default.

    `ways`: of doing it that are tried, 0 where it leaves nothing open.
    """

    stage: str
    settings: Settings
    words: str
    ways: int


@dataclass(frozen=True)
class Climbed:
    """A rung, and the minutes that it takes, roughly."""

    name: str
    stages: tuple[Step, ...]
    engine: str | None  # where it has one of its own
    minutes: float


@dataclass(frozen=True)
class Source:
    """Where samples come from, and how many of them serve."""

    source: str
    samples: int
    synthetic: bool


@dataclass(frozen=True)
class Minutes:
    """An estimate, right within a factor of about 2: if the first rung is enough, and if all rungs are climbed."""

    baseline: float
    least: float
    most: float


@dataclass(frozen=True)
class Explained:
    """What a run would do. `target` is the INT8 scheme; `champion` what no rung may be worse than."""

    model: str
    size_bytes: int
    parameters: int
    macs: int | None
    call_ms: float
    shapes: Mapping[str, str]
    calibration: Source
    evaluation: Source | None
    metric: str | None
    engine: str
    threads: int
    cpus_usable: int
    target: str
    load: str
    points: tuple[str, ...]
    gates: tuple[str, ...]
    champion: str | None
    proved_on: str | None
    registry: str
    limits: Settings
    rungs: tuple[Climbed, ...]
    minutes: Minutes
    warnings: tuple[str, ...]


def explained(plan: Plan) -> Explained:
    """Say what the run of a plan would do."""
    recipe, took = plan.recipe, estimated(plan)
    return Explained(
        model=str(plan.model.path),
        size_bytes=plan.model.size_bytes,
        parameters=plan.model.parameters,
        macs=plan.model.macs,
        call_ms=plan.call_s * 1e3,
        shapes={name: write_shape(dims) for name, dims in plan.shapes.items()},
        calibration=_source(plan.calibration),
        evaluation=_source(plan.evaluation) if plan.evaluation else None,
        metric=plan.metric,
        engine=_engine(recipe.engine),
        threads=plan.environment.threads,
        cpus_usable=plan.environment.cpus_usable,
        target=plan.scheme.name,
        load=recipe.load.describe(),
        points=tuple(point.at for point in plan.points),
        gates=tuple(map(_gate, recipe.gates)),
        champion=recipe.baseline.model if recipe.baseline else None,
        proved_on=recipe.proved_on,
        registry=public(str(recipe.registry.uri)),
        limits=recipe.limits.model_dump(mode="json", exclude_none=True),
        rungs=tuple(_rung(rung, plan, s / 60) for rung, s in zip(recipe.rungs, took.rungs_s, strict=True)),
        minutes=Minutes(took.baseline_s / 60, took.least_s / 60, took.most_s / 60),
        warnings=plan.warnings,
    )


def _source(samples: Samples) -> Source:
    return Source(str(samples.source.source), len(samples), samples.source.synthetic)


def _engine(engine: BaseModel) -> str:
    return _words(key(type(engine)), _settings(engine))


def _rung(rung: Rung, plan: Plan, minutes: float) -> Climbed:
    steps = tuple(_step(stage, plan.ways if stage.open else 0) for stage in rung.stages)
    return Climbed(rung.name, steps, _engine(rung.engine) if rung.engine else None, minutes)


def _step(stage: Stage, ways: int) -> Step:
    told = stage.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return Step(key(type(stage)), _settings(stage), _listed(told), ways)


def _settings(value: BaseModel) -> Settings:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _gate(gate: Gate) -> str:
    settings = gate.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    at = getattr(gate, "at", None)
    return _words(key(type(gate)), {**settings, "at": at.name()} if at else settings)


def _words(name: str, settings: Settings) -> str:
    return f"{name} {_listed(settings)}".strip()


def _listed(settings: Settings) -> str:
    filled = {name: setting for name, setting in settings.items() if setting not in ([], {}, "")}
    return ", ".join(
        f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in filled.items()
    )
