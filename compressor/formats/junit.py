"""report.xml: a run as JUnit XML, a test case a gate, for whatever reads test results in CI.

A property of the run is a line in `_properties`, another kind of test case a line in `_cases`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args
from xml.etree import ElementTree as ET

from compressor.errors import printable
from compressor.formats.sentence import deciding_trial, judged, sentence
from compressor.records import Report, Trial, Verdict

_NO_XML = re.compile("[\ufffe\uffff]")
"""Characters that `printable` leaves and XML 1.0 cannot hold."""
_Kind = Literal["failure", "error", "skipped"]
_OUTCOME: Mapping[str, _Kind | None] = {"pass": None, "fail": "failure", "inconclusive": "skipped"}


@dataclass(frozen=True)
class _Case:
    """A test case; `kind` is None where it passed."""

    name: str
    kind: _Kind | None
    message: str
    told: str
    type: str = "gate"


def render(report: Report) -> str:
    """Give the run as JUnit XML: one suite, and in it a case for each verdict on the candidate that decided."""
    cases, time = _distinct(tuple(_cases(report))), f"{report.duration_s:.3f}"
    root = _element("testsuites", name="compressor", **_counts(cases), time=time)
    name, timestamp = report.model.name, f"{report.started:%Y-%m-%dT%H:%M:%S}"
    suite = _element("testsuite", name=name, **_counts(cases), time=time, timestamp=timestamp)
    root.append(suite)
    properties = ET.SubElement(suite, "properties")
    properties.extend(_element("property", name=name, value=value) for name, value in _properties(report))
    suite.extend(_case(report.model.name, case) for case in cases)
    suite.append(_told("system-out", [sentence(report), *_left(report)]))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _cases(report: Report) -> Iterator[_Case]:
    """Give a case for each verdict, and where nothing passes for each rung that was not built and a run cut short."""
    decided = deciding_trial(report)
    if decided:
        yield from (_judged(decided.rung, verdict) for verdict in decided.verdicts)
    if report.verdict != "pass":
        for trial in _unbuilt(report):
            yield _Case(f"build {trial.rung}", "error", _why(trial), f"{trial.rung}: {_why(trial)}", "rung")
    if report.unfinished:
        yield _Case("run", "skipped", f"the run did not end: {report.unfinished}", sentence(report), "run")
    elif not (decided and decided.verdicts) and not any(_unbuilt(report)):
        yield _Case("run", _OUTCOME[report.verdict], sentence(report), sentence(report), "run")


def _judged(rung: str, verdict: Verdict) -> _Case:
    kind: _Kind | None = None if verdict.met else "skipped" if verdict.met is None else "failure"
    return _Case(verdict.gate, kind, verdict.reason, f"{rung}: {judged(verdict)}")


def _unbuilt(report: Report) -> Iterator[Trial]:
    return (trial for trial in (report.baseline, *report.trials) if trial.failure)


def _why(trial: Trial) -> str:
    return f"{trial.failure.stage}: {trial.failure.reason}" if trial.failure else ""


def _distinct(cases: Sequence[_Case]) -> tuple[_Case, ...]:
    """Number what is named alike: GitLab reads the first of a name only."""
    seen: Counter[str] = Counter()
    told = []
    for case in cases:
        seen[case.name] += 1
        told.append(replace(case, name=f"{case.name} ({seen[case.name]})") if seen[case.name] > 1 else case)
    return tuple(told)


def _counts(cases: Sequence[_Case]) -> dict[str, str]:
    found = Counter(case.kind for case in cases)
    failures, errors, skipped = (str(found[kind]) for kind in get_args(_Kind))
    return {"tests": str(len(cases)), "failures": failures, "errors": errors, "skipped": skipped}


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    decided, where = deciding_trial(report), report.environment
    yield "verdict", report.verdict
    yield "chosen", report.chosen or ""
    yield "judged", decided.rung if decided else ""
    yield "size_bytes.before", str(report.model.size_bytes)
    if decided and decided.size_bytes is not None:
        yield "size_bytes.after", str(decided.size_bytes)
    yield "model.sha256", report.model.sha256
    yield "cpu", where.cpu
    yield "threads", str(where.threads)
    yield from ((f"version.{name}", version) for name, version in where.versions.items())


def _case(suite: str, case: _Case) -> ET.Element:
    """Write a case; its time is unknown, since all gates are judged by one measurement."""
    made = _element("testcase", classname=suite, name=case.name, time="0")
    if case.kind == "skipped":
        made.append(_element("skipped", message=case.message))
    elif case.kind:
        made.append(_told(case.kind, [case.told], message=case.message, type=case.type))
    made.append(_told("system-out", [case.told]))
    return made


def _left(report: Report) -> Iterator[str]:
    """Say what else a reader of a green suite should know."""
    if report.verdict == "pass":
        yield from (f"{trial.rung} was not built: {_why(trial)}" for trial in _unbuilt(report))
    yield from (f"warning: {warning}" for warning in report.warnings)


def _element(tag: str, **attributes: str) -> ET.Element:
    return ET.Element(tag, {name: _text(value) for name, value in attributes.items()})


def _told(tag: str, lines: Sequence[str], **attributes: str) -> ET.Element:
    """Write lines, of which none becomes two by what a name holds."""
    made = _element(tag, **attributes)
    made.text = "\n".join(map(_text, lines))
    return made


def _text(value: str) -> str:
    """Escape what XML 1.0 cannot hold or would turn a reader's eye; its markup is escaped when it is written."""
    return _NO_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), printable(value))
