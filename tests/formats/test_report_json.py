from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compressor import formats
from compressor.errors import InputError
from compressor.records import Report

# The plan's list of fields, level by level, in its own words.
PLANNED = {
    "": "schema_version verdict chosen warnings model data baseline trials environment recipe registry raw started "
    "duration_s",
    "model": "name sha256 size_bytes parameters macs nodes opset",
    "data": "calibration evaluation preprocess metric",
    "data.calibration": "source sha256 n synthetic",
    "data.evaluation": "source sha256 n synthetic",
    "environment": "machine cpu isa cpus_usable threads spinning load versions saturates",
    "registry": "uri run_id model version alias",
    "baseline": "rung stages artifacts measurement failure model verdicts",
    "trials.0": "rung stages artifacts measurement failure model verdicts",
    "trials.0.stages.0": "stage settings did seconds peak_memory_bytes sqnr_db audit",
    "trials.0.model": "size_bytes parameters macs nodes",
    "trials.0.verdicts.0": "gate met observed limit low high reason",
    "trials.0.artifacts.0": "engine device files build_s options notes",
    "trials.0.artifacts.0.files.0": "path sha256 size_bytes",
    "trials.0.measurement": "size_bytes latency others throughput_per_s memory_bytes cost_per_million score speedup",
    "trials.0.measurement.latency": "p50_ms p50_low_ms p50_high_ms p90_ms p90_low_ms p90_high_ms p95_ms p95_low_ms "
    "p95_high_ms p99_ms p99_low_ms p99_high_ms mean_ms n cold_ms load_ms shape load",
    "trials.0.measurement.score": "metric value n low high drop drop_low drop_high emulated",
    "trials.0.measurement.speedup": "ratio low high",
}
# What was added since: fields may be added, never changed or removed.
ADDED = {
    "baseline": "score errors beside",
    "trials.0": "score errors beside",
    "trials.0.measurement": "errors startup gpu_ms proxy",
    "trials.0.measurement.errors.logits": "n sqnr_db mean p95 max_abs",
    "trials.0.measurement.latency": "preempted bounds at throughput_per_s throughput_low_per_s throughput_high_per_s "
    "stalled offered_per_s overloaded rounds growing quantiles_ms",
    "trials.0.measurement.latency.bounds.0": "percentile confidence value_ms low_ms high_ms limit_ms violations "
    "dispersion steady needed",
    "trials.0.measurement.score": "reference relative worst",
    "trials.0.measurement.score.worst": "label n before value drop drop_low drop_high",
    "trials.0.measurement.speedup": "baseline_p50_ms rounds lowest highest preempted stalled",
    "trials.0.measurement.startup": "percentile confidence value_ms low_ms high_ms limit_ms violations dispersion "
    "steady needed",
    "": "unfinished champion verifies",
    "registry": "confirmed note",
    "trials.0.stages.0": "changed uncalibrated tried notes pruned reused",
    "trials.0.stages.0.audit": "integer_nodes float_nodes qdq_left excluded integer blocked operators slower errors",
    "trials.0.stages.0.audit.operators.0": "operator nodes before_ms now_ms",
    "trials.0.stages.0.tried.0": "settings taken why size_bytes sqnr_db exact_db ratio low high",
    "trials.0.verdicts.0": "at unit",
    "trials.1.failure": "stage reason",
}


def _at(tree: Any, place: str) -> Any:
    for key in place.split(".") if place else ():
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    return tree


@pytest.mark.parametrize("place", sorted(PLANNED.keys() | ADDED.keys()))
def test_the_fields_are_those_of_the_plan(report: Report, place: str) -> None:
    expected = f"{PLANNED.get(place, '')} {ADDED.get(place, '')}".split()
    assert sorted(_at(json.loads(formats.render(report, "json")), place)) == sorted(expected)


def test_a_report_comes_back_as_it_was(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(formats.render(report, "json"), encoding="utf-8")
    assert formats.read(path) == report


def test_numbers_keep_every_digit(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(formats.render(replace(report, duration_s=0.1 + 0.2), "json"))
    assert formats.read(path).duration_s == 0.30000000000000004


def test_numbers_that_are_not_finite_give_valid_json_that_can_be_read(report: Report, tmp_path: Path) -> None:
    trial = report.trials[0]
    assert trial.measurement
    assert trial.measurement.score
    score = replace(trial.measurement.score, value=math.nan, drop=math.inf)
    broken = replace(trial, measurement=replace(trial.measurement, score=score))
    path = tmp_path / "report.json"
    path.write_text(formats.render(replace(report, trials=(broken,), recipe={"x": math.inf}), "json"))
    tree = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert _at(tree, "trials.0.measurement.score.value") is None
    assert tree["recipe"] == {"x": None}
    measured = formats.read(path).trials[0].measurement
    assert measured
    assert measured.score
    assert math.isnan(measured.score.value)
    assert measured.score.drop is None


def test_a_report_without_the_fields_added_since_is_read_as_if_they_said_nothing(
    report: Report, tmp_path: Path
) -> None:
    tree = json.loads(formats.render(report, "json"))
    trial = tree["trials"][0]
    del trial["measurement"]["score"]["relative"], trial["measurement"]["speedup"]["baseline_p50_ms"]
    del trial["measurement"]["errors"], trial["measurement"]["startup"], trial["measurement"]["latency"]["at"]
    del trial["stages"][0]["changed"], trial["stages"][0]["uncalibrated"], trial["verdicts"][0]["unit"]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(tree))
    found = formats.read(path).trials[0]
    assert found.measurement
    assert found.measurement.score
    assert found.measurement.speedup
    assert (found.measurement.score.relative, found.measurement.speedup.baseline_p50_ms) == (False, None)
    assert (found.measurement.errors, found.measurement.startup, found.measurement.latency.at) == ({}, None, "")
    assert (found.stages[0].changed, found.stages[0].uncalibrated, found.verdicts[0].unit) == (True, False, "")


def test_a_field_added_by_a_later_version_does_no_harm(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(json.loads(formats.render(report, "json")) | {"added_later": 1}))
    assert formats.read(path) == report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "it is not JSON"),
        pytest.param("[" * 100_000, "it is not JSON", id="nested beyond reading"),
        ("[]", "expected a report with schema_version 1, found None"),
        ('{"schema_version": 2}', "expected a report with schema_version 1, found 2"),
        ('{"schema_version": 1}', r"report\.json: verdict: Field required"),
    ],
)
def test_another_file_is_refused_in_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        formats.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("place", "value"), [("warnings", None), ("duration_s", []), ("started", "yesterday")])
def test_a_value_of_another_kind_is_refused(report: Report, tmp_path: Path, place: str, value: object) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(json.loads(formats.render(report, "json")) | {place: value}))
    with pytest.raises(InputError, match=rf"report\.json: {place}: "):
        formats.read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"report\.json.*cannot be read"):
        formats.read(tmp_path / "report.json")


def test_a_choice_that_is_not_there_is_refused(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(formats.render(replace(report, chosen="nosuch"), "json"))
    with pytest.raises(InputError, match="chosen: 'nosuch' is no rung with an artifact"):
        formats.read(path)


@pytest.mark.parametrize("outside", ["/etc/passwd", "../../secret", "a\0b", "a" * 5000])
def test_a_file_outside_the_runs_folder_is_refused(report: Report, tmp_path: Path, outside: str) -> None:
    tree = json.loads(formats.render(report, "json"))
    tree["trials"][0]["artifacts"][0]["files"][0]["path"] = outside
    (tmp_path / "report.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match="lies outside the run's folder"):
        formats.read(tmp_path / "report.json")
