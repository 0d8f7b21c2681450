"""What a record shows of a report: tags, metrics, parameters, the text of a version.

A number is recorded by being a field of the records read in `_numbers`; everything else is added to `tags`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from compressor import schemes, workspace
from compressor.records import Artifact, Measurement, Report, Trial
from compressor.registry import serving

_DESCRIPTION_CHARACTERS = 5000  # the width of mlflow's column model_versions.description
_TAG_CHARACTERS = 5000
_PARAM_CHARACTERS = 6000  # mlflow 3.17 cuts longer values, with a warning
_PARAMS = 100  # mlflow 3.17 takes no more in one call
_POINT = (
    "p50_ms",
    "p99_high_ms",
    "throughput_per_s",
    "offered_per_s",
)  # of another load or shape: no more, there may be many
IDENTITY = "compressor.report"
"""The tag that tells the runs of one report from all others."""
VERIFIED = "verified."
"""What the tags of a version begin with that tell how it did on a machine where it was verified."""
_DECIDES_NOTHING = ("registry", "limits", "baseline", "proved_on")
_STARTUP = ("value_ms", "high_ms")
_CUT = "\n\n(The rest stands in the artifact report.md.)\n"


def identity(report: Report) -> str:
    """Tell a report from all others."""
    return f"{report.started.isoformat()} {report.model.sha256}"


def tags(report: Report) -> dict[str, str]:
    """Give what identifies a run and its outcome, its numbers that are not finite, and where it was overloaded."""
    return {
        IDENTITY: identity(report),
        "compressor.verdict": report.verdict,
        "compressor.chosen": report.chosen or "none",
        "compressor.original_sha256": report.model.sha256,
        "compressor.recipe": recipe_hash(report),
        "compressor.metric": report.data.metric or "none",
        "compressor.cpu": report.environment.cpu,
        **({"compressor.measured": "cpu-proxy"} if is_proxied(report) else {}),
        **({"compressor.unfinished": report.unfinished[:_TAG_CHARACTERS]} if report.unfinished else {}),
        **{key: str(value) for key, value in _measured(report).items() if not math.isfinite(value)},
        **dict(_strained(report)),
    }


def recipe_hash(report: Report) -> str:
    """Tell what was asked from what else is asked: twelve digits of a digest of all that decides something."""
    decides = {key: value for key, value in report.recipe.items() if key not in _DECIDES_NOTHING}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]


def verified(report: Report) -> tuple[str, str]:
    """Give the tag that says how a version did on the machine where it was verified, and what it says."""
    judged = report.trials[-1] if report.trials else report.baseline
    p99 = judged.measurement.latency.p99_ms if judged.measurement else None
    told = f"{report.verdict} on {report.started:%Y-%m-%d}" + (f", p99 {p99:.4g} ms" if p99 is not None else "")
    return f"{VERIFIED}{workspace.file_name(report.environment.cpu)}", told


def is_proxied(report: Report) -> bool:
    """Tell whether the times of what was chosen are of something else, so that nothing shows how fast it is."""
    trials = (report.baseline, *report.trials)
    chosen = [trial.measurement for trial in trials if trial.rung == report.chosen]
    return any(measurement is not None and measurement.proxy is not None for measurement in chosen)


def elsewhere(report: Report) -> str | None:
    """Name the kind of machine, or the devices, that what was chosen is for; None where that is what it was run on."""
    trials = (report.baseline, *report.trials)
    chosen = next((trial for trial in trials if trial.rung == report.chosen), None)
    if chosen and any(artifact.is_engine for artifact in chosen.artifacts):
        return ", ".join(artifact.device for artifact in chosen.artifacts) if chosen.measurement is None else None
    target: str = report.recipe.get("target", schemes.AUTO)
    return target if target not in {schemes.AUTO, schemes.of(report.environment.isa).name} else None


def artifact_tags(artifacts: Sequence[Artifact]) -> dict[str, str]:
    """Give what identifies the files of a version: of several artifacts, the first file of each in their order."""
    files = {file.path: file for artifact in artifacts for file in artifact.files}
    return {
        "compressor.sha256": ", ".join(artifact.files[0].sha256 for artifact in artifacts),
        "compressor.size_bytes": str(sum(file.size_bytes for file in files.values())),
        "compressor.engine": artifacts[0].engine,
        "compressor.device": ", ".join(artifact.device for artifact in artifacts),
    }


def content(report: Report, artifacts: Sequence[Artifact]) -> str:
    """Tell a version from all others that hold something else or came about otherwise: a digest.

    Of the files, how they are opened, what they need, the original model and the recipe, but for what decides nothing.
    """
    files = serving.placed(tuple(artifacts))
    told = {
        "files": {name: file.sha256 for name, file in files.items()},
        "artifacts": [[artifact.engine, artifact.device, dict(artifact.options)] for artifact in artifacts],
        "requirements": serving.requirements(artifacts[0], report.environment.versions),
        "original": report.model.sha256,
        "recipe": {key: value for key, value in report.recipe.items() if key not in _DECIDES_NOTHING},
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def metrics(report: Report) -> dict[str, float]:
    """Give the finite numbers of every rung under names such as `int8.p99_ms`."""
    return {key: value for key, value in _measured(report).items() if math.isfinite(value)}


def params(report: Report) -> dict[str, str]:
    """Give the resolved recipe under names such as `engine.onnxruntime.threads`, lists as JSON.

    The first hundred only; recipe.yaml, logged beside them, holds every one.
    """
    return dict(islice(_flat(report.recipe), _PARAMS))


def description(markdown: str) -> str:
    """Give the report as the text of a version: at most 5000 characters, cut where a line ends, folded parts first."""
    if len(markdown) <= _DESCRIPTION_CHARACTERS:
        return markdown
    unfolded = markdown.partition("\n<details>")[0]
    kept = unfolded[: _DESCRIPTION_CHARACTERS - len(_CUT)]
    return (kept if kept == unfolded else kept.rpartition("\n")[0]) + _CUT


def _measured(report: Report) -> dict[str, float]:
    return {
        f"{workspace.file_name(trial.rung)}.{name}": value
        for trial in (report.baseline, *report.trials)
        for name, value in _numbers(trial).items()
    }


def _strained(report: Report) -> Iterator[tuple[str, str]]:
    """Name the points of each rung whose percentiles are lower limits only."""
    for trial in (report.baseline, *report.trials):
        latencies = (trial.measurement.latency, *trial.measurement.others) if trial.measurement else ()
        if points := [one.at or "main load" for one in latencies if one.overloaded or one.growing]:
            yield f"{workspace.file_name(trial.rung)}.overloaded", ", ".join(points)


def _numbers(trial: Trial) -> dict[str, float]:
    found = _fields(trial.model)
    if (measured := trial.measurement) is not None:
        found |= _fields(measured) | _fields(measured.latency)
        found |= _fields(measured.score, "score_") | _fields(measured.speedup, "speedup_")
        found |= _losses(measured) | _fields(measured.startup, "startup_", _STARTUP)
        for other in measured.others:
            found |= _fields(other, f"{workspace.file_name(other.at)}.", _POINT)
    return found


def _losses(measured: Measurement) -> dict[str, float]:
    """Give what the worst class lost, and the error that 95 % of the samples stay below at the worst output."""
    worst = measured.score.worst if measured.score else None
    found = _fields(worst, "score_worst_", ("label", "drop"))
    return found | ({"error_p95": max(far.p95 for far in measured.errors.values())} if measured.errors else {})


def _fields(record: Any, prefix: str = "", only: Collection[str] = ()) -> dict[str, float]:
    """Give the fields that hold a number, all or `only` some; none of None."""
    names = [field.name for field in fields(record) if not only or field.name in only] if record is not None else []
    values = {name: getattr(record, name) for name in names}
    return {f"{prefix}{name}": value for name, value in values.items() if type(value) in (int, float)}


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in recipe.items():
        name = f"{prefix}{workspace.file_name(key)}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, (value if isinstance(value, str) else json.dumps(value))[:_PARAM_CHARACTERS]
