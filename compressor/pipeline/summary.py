"""What every report says of its model and its data.

A report's block that does not depend on what was measured is a function here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from compressor.pipeline import choose
from compressor.plan import Plan
from compressor.records import Data, Model, Original, Report, Trial

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Begun:
    """When a command began, by the calendar and by a clock that nobody sets."""

    at: datetime
    clock_s: float

    @classmethod
    def now(cls) -> Begun:
        """Begin."""
        return cls(datetime.now(UTC), time.monotonic())


def report(settled: Plan, trials: tuple[Trial, ...], folder: Path, begun: Begun) -> Report:
    """Put together what a plan came to, by its trials so far, the baseline's first."""
    baseline, *others = trials
    verdict, chosen = choose.outcome(baseline, others)
    return Report(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        chosen=chosen,
        warnings=settled.warnings,
        model=original(settled.model),
        data=data(settled),
        baseline=baseline,
        trials=tuple(others),
        environment=settled.environment,
        recipe=settled.recipe.model_dump(mode="json", by_alias=True, exclude_none=True),
        registry=None,
        raw=_raw(folder),
        started=begun.at,
        duration_s=time.monotonic() - begun.clock_s,
    )


def original(model: Model) -> Original:
    """Describe the model that was given."""
    return Original(
        name=model.path.stem,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        parameters=model.parameters,
        macs=model.macs,
        nodes=model.nodes,
        opset=model.opset,
    )


def data(settled: Plan) -> Data:
    """Describe the samples that were used."""
    preprocess = settled.recipe.data.preprocess
    return Data(
        calibration=settled.calibration.source,
        evaluation=settled.evaluation.source if settled.evaluation else None,
        preprocess=preprocess.model_dump(mode="json", exclude_none=True) if preprocess else None,
        metric=settled.metric,
    )


def _raw(folder: Path) -> Mapping[str, str]:
    files = sorted((folder / "raw").glob("*.npy"))
    return {path.stem: path.relative_to(folder).as_posix() for path in files}
