"""report.xml as readers of JUnit XML see it: an independent parser, and the schema that Jenkins publishes, in words."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import found
import junitparser
import pytest

from compressor import formats
from compressor import records as r

UNMET = r.Verdict("size", met=False, observed=2e6, limit=1e6, low=None, high=None, reason="too large", unit="B")
OPEN = r.Verdict("latency p99", met=None, observed=None, limit=50.0, low=None, high=9.5, reason="too few", unit="ms")
HOSTILE = "]]> <script>alert(1)</script> & \" ' \x1b[31m \x00 \ud800 \ufffe\uffff \u202egnp"
CHILDREN = {  # of each element, what it may hold, in this order. Source: jenkins xunit, junit-10.xsd
    "testsuites": ("testsuite",),
    "testsuite": ("properties", "testcase", "system-out"),
    "properties": ("property",),
    "testcase": ("skipped", "error", "failure", "system-out"),
    **dict.fromkeys(("property", "skipped", "error", "failure", "system-out"), ()),
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "skipped": {"message"},
    **{key: {"message", "type"} for key in ("error", "failure")},
    **{key: set[str]() for key in ("properties", "system-out")},
}


def checked(report: r.Report, tmp_path: Path) -> Any:
    """Render, hold against the schema, and give the suite as another parser reads it."""
    text = formats.render(report, "xml")
    path = tmp_path / "report.xml"
    path.write_text(text, encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - made here
    assert root.tag == "testsuites"
    for element in root.iter():
        order = [CHILDREN[element.tag].index(child.tag) for child in element]
        assert order == sorted(order), element.tag
        assert set(element.attrib) == ATTRIBUTES[element.tag], element.tag
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    kinds = Counter(child.tag for case in root.iter("testcase") for child in case)
    for counted in (suite, root[0].attrib, root.attrib):
        read = counted.get if isinstance(counted, dict) else counted._elem.get
        assert read("tests") == str(len(list(suite)))
        assert [read(name) for name in ("failures", "errors", "skipped")] == [
            str(kinds[kind]) for kind in ("failure", "error", "skipped")
        ]
    return suite


def results(suite: Any) -> dict[str, list[tuple[str, str | None]]]:
    """Give kind and message of what each case came to, by its name."""
    return {case.name: [(type(one).__name__, one.message) for one in case.result] for case in suite}


def with_verdicts(*verdicts: r.Verdict) -> r.Trial:
    return replace(found.INT8, verdicts=verdicts)


def test_every_gate_of_the_chosen_rung_is_a_case_that_passed(report: r.Report, tmp_path: Path) -> None:
    suite = checked(report, tmp_path)
    assert results(suite) == {"latency p99": [], "accuracy": []}
    first = next(iter(suite))
    assert first.classname == suite.name == "net"
    assert "31.5 [31, 33.25] ms, limit 50 ms" in first.system_out
    assert suite.time == 61.5
    assert suite.timestamp == "2026-03-04T05:06:07"
    properties = {one.name: one.value for one in suite.properties()}
    assert properties["verdict"] == "pass"
    assert properties["chosen"] == properties["judged"] == "int8"
    assert (properties["size_bytes.before"], properties["size_bytes.after"]) == ("25600000", "6400000")
    assert properties["cpu"] == "a CPU"
    assert properties["version.onnxruntime"] == "1.2.3"


def test_a_rung_that_failed_below_a_chosen_one_is_told_and_no_error(report: r.Report, tmp_path: Path) -> None:
    text = formats.render(report, "xml")
    assert checked(report, tmp_path).errors == 0
    assert "int8-fused was not built: fuse: the simplifier refused it" in text
    assert "warning: the machine was busy" in text


def test_what_misses_fewest_gates_is_judged_where_nothing_is_chosen(report: r.Report, tmp_path: Path) -> None:
    two = replace(with_verdicts(UNMET, replace(UNMET, gate="macs")), rung="two")
    one = replace(with_verdicts(UNMET, OPEN), rung="one")
    baseline = replace(found.BASELINE, verdicts=(UNMET, replace(UNMET, gate="accuracy"), OPEN))
    failed = replace(report, verdict="fail", chosen=None, baseline=baseline, trials=(two, one, found.BROKEN))
    suite = checked(failed, tmp_path)
    assert results(suite) == {
        "size": [("Failure", "too large")],
        "latency p99": [("Skipped", "too few")],
        "build int8-fused": [("Error", "fuse: the simplifier refused it")],
    }
    assert {"judged": "one", "chosen": ""}.items() <= {p.name: p.value or "" for p in suite.properties()}.items()
    (failure,) = next(iter(suite)).result
    assert failure.type == "gate"
    assert "2 MB" in failure.text
    assert "limit 1 MB" in failure.text


def test_verdicts_that_no_recipe_asks_for_are_cases_too(report: r.Report, tmp_path: Path) -> None:
    asked = [replace(UNMET, gate=gate) for gate in ("speed", "change", "calibration", "champion speed")]
    failed = replace(report, verdict="fail", chosen=None, trials=(with_verdicts(*found.INT8.verdicts, *asked),))
    baseline = replace(found.BASELINE, verdicts=(UNMET,) * 5)
    suite = checked(replace(failed, baseline=baseline), tmp_path)
    assert list(results(suite)) == ["latency p99", "accuracy", "speed", "change", "calibration", "champion speed"]


def test_gates_of_one_name_are_told_apart(report: r.Report, tmp_path: Path) -> None:
    inconclusive = replace(report, verdict="inconclusive", chosen=None, trials=(with_verdicts(OPEN, OPEN),))
    assert list(results(checked(inconclusive, tmp_path))) == ["latency p99", "latency p99 (2)"]


@pytest.mark.parametrize(
    ("verdict", "unfinished", "expected"),
    [
        ("pass", None, []),
        ("fail", None, ["Failure"]),
        ("inconclusive", None, ["Skipped"]),
        ("inconclusive", "stopped by SIGTERM", ["Skipped"]),
    ],
)
def test_a_report_without_any_verdict_has_a_case_all_the_same(
    report: r.Report, tmp_path: Path, verdict: r.Outcome, unfinished: str | None, expected: list[str]
) -> None:
    nothing = replace(report, verdict=verdict, unfinished=unfinished, baseline=r.Trial("baseline"), trials=())
    nothing = replace(nothing, chosen="baseline" if verdict == "pass" else None)
    (case,) = results(checked(nothing, tmp_path)).items()
    assert (case[0], [kind for kind, _ in case[1]]) == ("run", expected)


def test_a_run_that_was_cut_short_is_not_green(report: r.Report, tmp_path: Path) -> None:
    cut = replace(report, verdict="inconclusive", chosen=None, unfinished="limits.run is over")
    assert results(checked(cut, tmp_path)) == {
        "latency p99": [],
        "accuracy": [],
        "build int8-fused": [("Error", "fuse: the simplifier refused it")],
        "run": [("Skipped", "the run did not end: limits.run is over")],
    }


def test_a_baseline_that_could_not_be_measured_is_an_error(report: r.Report, tmp_path: Path) -> None:
    broken = r.Trial("baseline", failure=r.Failure("measure", "it crashed"))
    failed = replace(report, verdict="fail", chosen=None, baseline=broken, trials=())
    assert results(checked(failed, tmp_path)) == {"build baseline": [("Error", "measure: it crashed")]}


def test_hostile_names_and_reasons_are_text(report: r.Report, tmp_path: Path) -> None:
    verdict = replace(UNMET, gate=f"gate {HOSTILE}", reason=HOSTILE, unit=HOSTILE)
    hostile = replace(
        report,
        verdict="fail",
        chosen=None,
        warnings=(HOSTILE,),
        model=replace(report.model, name=HOSTILE),
        environment=replace(report.environment, cpu=HOSTILE, versions={HOSTILE: HOSTILE}),
        trials=(replace(with_verdicts(verdict), rung=HOSTILE), r.Trial("b", failure=r.Failure(HOSTILE, HOSTILE))),
        baseline=replace(found.BASELINE, verdicts=(UNMET, UNMET)),
    )
    suite = checked(hostile, tmp_path)
    shown = suite.name
    assert "<script>alert(1)</script> & \" '" in shown
    assert shown.startswith("]]>")
    assert [kind for (kind, _) in results(suite)[f"gate {shown}"]] == ["Failure"]
    text = formats.render(hostile, "xml")
    assert "<script" not in text
    assert "]]>" not in text
    assert all(line.isprintable() for line in text.splitlines())
    # Source: XML 1.0, production 2 (Char)
    assert re.fullmatch("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*", text)
