"""Which version is served: `champion` met every gate where it counts, `candidate` still has to be proved there.

Another reason for which a version is no champion yet is a branch in `_kept`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from compressor import machine
from compressor.errors import CompressorError, InputError, MachineError
from compressor.records import Report, VersionName
from compressor.registry import entry, versions
from compressor.registry.connection import connected
from compressor.registry.place import check, database, nowhere, public
from compressor.registry.versions import Run

CHAMPION, CANDIDATE = "champion", "candidate"
ALIASES = (CHAMPION, CANDIDATE)
NOTE = "compressor.note"
"""The tag of a version that says why it is no champion yet."""
_VERDICT = "compressor.verdict"


@dataclass(frozen=True)
class Promoted:
    """A version that became the champion, and the one that was it before, if any."""

    name: str
    version: str
    before: str | None


def give(run: Run, name: str, version: str) -> None:
    """Give a version that met every gate its alias: champion, or candidate where that has to be proved elsewhere.

    Where the recipe named a champion to compare with, the alias moves only from that very version. On a server, which
    knows no condition, that is what it was a moment before.
    """
    report = run.report
    if report.verdict != "pass":
        return
    champion, tags = _held(run.client, name, CHAMPION), run.client.get_model_version(name, version).tags
    note = _kept(report, name, champion) if champion != version else ""
    if note and _stands(run, tags):
        return
    if note:
        run.client.set_model_version_tag(name, version, NOTE, note)
        run.client.set_registered_model_alias(name, CANDIDATE, version)
    else:
        _crown(run.client, name, version)
        if NOTE in tags:
            run.client.delete_model_version_tag(name, version, NOTE)


def promote(uri: str, name: str, version: str, force: bool) -> Promoted:  # noqa: FBT001 - a keyword does not reach a child
    """Make a version the champion by hand. Meant for a child process: it imports mlflow and sets its URI.

    Raises:
        InputError: There is no such version, or it did not meet every gate and nobody insists.
        MachineError: The registry does not answer.
    """
    check(uri)
    if (file := database(uri)) and not file.exists():  # mlflow would create it
        raise nowhere(name, uri)
    with connected(uri, partial(_refused, uri, name)) as client:
        listed = {str(each.version): each for each in versions.every(client, name)}
        if version not in listed:
            there = ", ".join(reversed(listed)) or "none"
            raise InputError(f"{name}: has no version {version!r}; there is {there}")
        held = _held(client, name, CANDIDATE) == version  # what is searched for comes without aliases
        if (why := _doubt(listed[version].tags, VersionName(name, version), candidate=held)) and not force:
            raise InputError(f"{name} version {version}: {why}; --force promotes it all the same")
        before = _held(client, name, CHAMPION)
        _crown(client, name, version)
    return Promoted(name, version, before if before != version else None)


def _kept(report: Report, name: str, champion: str | None) -> str:
    """Say why a version that met every gate here is no champion yet; nothing where it is."""
    proved_on = report.recipe.get("proved_on")
    if entry.is_proxied(report):
        return "its latency is that of a stand-in: prove it where it will serve, with `compress verify`"
    if target := entry.elsewhere(report):
        return f"made for {target}, which was not here: prove it there, with `compress verify`"
    if proved_on and not machine.is_named(report.environment.cpu, proved_on):
        return f"measured on {report.environment.cpu}: prove it on {proved_on}, with `compress verify`"
    return _rivalled(report, name, champion) if report.recipe.get("baseline") else ""


def _rivalled(report: Report, name: str, champion: str | None) -> str:
    """Say why what was to be held against the champion was not held against that of now; nothing where it was."""
    measured = report.champion.version if report.champion and report.champion.name == name else None
    if champion == measured:
        return ""
    if champion is None:
        return f"version {measured}, beside which it was measured, is the champion no more: run again"
    return f"version {champion} is the champion now, beside which it was not measured: run again against it"


def _stands(run: Run, tags: Mapping[str, str]) -> bool:
    """Tell whether an earlier run made the version and nothing is open about it, so that this one adds no doubt."""
    earlier = tags.get(entry.IDENTITY) != entry.identity(run.report)
    return earlier and tags.get(_VERDICT) == "pass" and NOTE not in tags


def _doubt(tags: Mapping[str, str], name: VersionName, *, candidate: bool) -> str | None:
    """Say why a version is not to be promoted: how it did where it was made, or verified last on some machine."""
    if (made := tags.get(_VERDICT, "unknown")) != "pass":
        return f"its verdict is {made}, and only what met every gate is promoted"
    for key, value in sorted(tags.items()):
        if key.startswith(entry.VERIFIED) and not value.startswith("pass"):
            where = key.removeprefix(entry.VERIFIED)
            return f"its verdict on {where} is {value}, and only what met every gate is promoted"
    if candidate or NOTE in tags:
        why = f" ({tags[NOTE]})" if NOTE in tags else ""
        return (
            f"is a candidate, which met every gate where it was measured, but not yet where it counts{why}: `compress "
            f"verify {name}` there"
        )
    return None


def _held(client: Any, name: str, alias: str) -> str | None:
    """Give the version that has an alias now."""
    found = client.get_registered_model(name).aliases.get(alias)
    return None if found is None else str(found)


def _crown(client: Any, name: str, version: str) -> None:
    client.set_registered_model_alias(name, CHAMPION, version)
    if _held(client, name, CANDIDATE) == version:
        client.delete_registered_model_alias(name, CANDIDATE)


def _refused(uri: str, name: str, reason: str) -> CompressorError:
    return MachineError(f"{name}: the registry {public(uri, uri)} refuses: {reason}")
