"""The versions of a registered model, one beside the other.

What else tells versions apart is a field of `Past`, read from the tags and metrics that `entry` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from compressor import workspace
from compressor.errors import CompressorError, InputError, MachineError
from compressor.registry import entry, versions
from compressor.registry.connection import connected
from compressor.registry.place import check, database, nowhere, public


@dataclass(frozen=True)
class Past:
    """A version as it was measured when it was made. None where that is not recorded.

    `p99_high_ms`: the upper limit, None too where the samples were too few for one. `recipe`: the same digits, the same
    recipe. `verified`: what `compress verify` found, by machine.
    """

    version: str
    aliases: tuple[str, ...]
    made: datetime
    rung: str | None
    size_bytes: int | None
    p99_ms: float | None
    p99_high_ms: float | None
    speedup: float | None
    metric: str | None
    score: float | None
    verdict: str | None
    recipe: str | None
    cpu: str | None
    verified: Mapping[str, str]


def history(uri: str, name: str) -> tuple[Past, ...]:
    """Give the versions of a model, the latest first. Meant for a child process: it imports mlflow and sets its URI.

    Raises:
        InputError: No such model is registered; the sentence lists what is.
        MachineError: The registry does not answer.
    """
    check(uri)
    if (file := database(uri)) and not file.exists():  # mlflow would create it
        raise nowhere(name, uri)
    with connected(uri, partial(_refused, uri, name)) as client:
        found = versions.every(client, name)
        if not found:
            names = sorted(each.name for each in client.search_registered_models(max_results=100))
            there = f"there is {', '.join(names)}" if names else "nothing is registered there"
            raise InputError(f"{name}: no model of that name has a version; {there}")
        aliases = client.get_registered_model(name).aliases
        return tuple(_past(version, aliases, _metrics(client, version)) for version in found)


def _metrics(client: Any, version: Any) -> Mapping[str, float]:
    """Give the numbers of the run that made a version; none where that was deleted, or there was none."""
    from mlflow.exceptions import MlflowException

    if not version.run_id:  # registered by hand
        return {}
    try:
        metrics: Mapping[str, float] = client.get_run(version.run_id).data.metrics
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return {}
    return metrics


def _past(version: Any, aliases: Mapping[str, Any], metrics: Mapping[str, float]) -> Past:
    tags: Mapping[str, str] = version.tags
    rung = tags.get("compressor.chosen")

    def metric(name: str) -> float | None:
        return metrics.get(f"{workspace.file_name(rung)}.{name}") if rung else None

    size_bytes = tags.get("compressor.size_bytes", "")
    return Past(
        version=str(version.version),
        aliases=tuple(sorted(alias for alias, number in aliases.items() if str(number) == str(version.version))),
        made=datetime.fromtimestamp(version.creation_timestamp / 1000, UTC),
        rung=rung,
        size_bytes=int(size_bytes) if size_bytes.isdecimal() else None,
        p99_ms=metric("p99_ms"),
        p99_high_ms=metric("p99_high_ms"),
        speedup=metric("speedup_ratio"),
        metric=tags.get("compressor.metric"),
        score=metric("score_value"),
        verdict=tags.get("compressor.verdict"),
        recipe=tags.get("compressor.recipe"),
        cpu=tags.get("compressor.cpu"),
        verified={
            key.removeprefix(entry.VERIFIED): value for key, value in tags.items() if key.startswith(entry.VERIFIED)
        },
    )


def _refused(uri: str, name: str, reason: str) -> CompressorError:
    return MachineError(f"{name}: the registry {public(uri, uri)} does not tell: {reason}")
