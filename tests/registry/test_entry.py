from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

from found import REPORT

from compressor import records as r
from compressor.registry import entry

LATENCY = r.Latency(
    **{f"p{q}{end}_ms": 1.0 for q in (50, 90, 95, 99) for end in ("", "_low", "_high")} | {"p99_ms": 7.5},
    mean_ms=1.5,
    n=100,
    cold_ms=None,
    load_ms=3.0,
    shape={"x": "1x3"},
    load="closed",
    preempted=0.0,
)


def _report(*, ratio: float = 2.0, recipe: dict[str, object] | None = None, rung: str = "int8") -> r.Report:
    score = r.Score("top1", 0.75, 40, 0.6, 0.9, drop=0.01)
    measured = r.Measurement(123, LATENCY, 400.0, None, score, r.Speedup(ratio, 1.5, 2.5))
    return r.Report(
        schema_version=1,
        verdict="pass",
        chosen=rung,
        warnings=(),
        model=r.Original("net", "ab12", 400, 100, 5000, 7, 17),
        data=r.Data(None, None, None, None),
        baseline=r.Trial("baseline"),
        trials=(r.Trial(rung, measurement=measured, model=r.Size(120, 90, None, 6)),),
        environment=r.Environment("m", "cpu", ("avx2",), 2, 2, spinning=False, load=None, versions={}, saturates=False),
        recipe=recipe or {},
        registry=None,
        raw={},
        started=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
        duration_s=9.0,
    )


def test_metrics_are_every_number_of_a_rung_under_its_name() -> None:
    found = entry.metrics(_report())
    assert found["int8.p99_ms"] == 7.5
    assert found["int8.load_ms"] == 3.0
    assert found["int8.size_bytes"] == 123
    assert found["int8.parameters"] == 90
    assert found["int8.score_value"] == 0.75
    assert found["int8.score_drop"] == 0.01
    assert found["int8.speedup_ratio"] == 2.0
    assert found["int8.throughput_per_s"] == 400.0


def test_other_points_give_few_numbers_each_under_their_name() -> None:
    found = {key: value for key, value in entry.metrics(REPORT).items() if key.startswith("int8.batch_8.")}
    assert found == {
        "int8.batch_8.p50_ms": 1.0,
        "int8.batch_8.throughput_per_s": 120.0,
        "int8.batch_8.offered_per_s": 300.0,
    }


def test_the_worst_class_the_largest_error_and_the_start_are_metrics() -> None:
    found = entry.metrics(REPORT)
    assert (found["int8.score_worst_label"], found["int8.score_worst_drop"]) == (7, 0.25)
    assert found["int8.error_p95"] == 0.05
    assert (found["int8.startup_value_ms"], found["int8.startup_high_ms"]) == (120.0, 150.0)
    assert not [key for key in found if "percentile" in key or "before" in key or key.startswith("baseline.error")]


def test_what_was_not_measured_is_no_metric() -> None:
    found = entry.metrics(_report())
    assert (
        not {"int8.cold_ms", "int8.macs", "int8.memory_bytes", "int8.score_relative", "int8.speedup_baseline_p50_ms"}
        & found.keys()
    )
    assert not any(key.startswith("baseline") for key in found)


def test_a_number_that_is_not_finite_becomes_a_tag() -> None:
    report = _report(ratio=math.inf)
    assert "int8.speedup_ratio" not in entry.metrics(report)
    assert entry.tags(report)["int8.speedup_ratio"] == "inf"


def test_a_rung_with_any_name_gives_names_that_mlflow_takes() -> None:
    assert "a_b_c.p99_ms" in entry.metrics(_report(rung="a|b<\nc"))


def test_params_are_the_recipe_with_lists_as_json() -> None:
    recipe = {"seed": 0, "engine": {"onnxruntime": {"threads": 2}}, "rungs": [{"name": "int8"}], "data": {}}
    assert entry.params(_report(recipe=recipe)) == {
        "seed": "0",
        "engine.onnxruntime.threads": "2",
        "rungs": '[{"name": "int8"}]',
        "data": "{}",
    }


def test_params_stay_within_what_mlflow_takes() -> None:
    found = entry.params(_report(recipe={"long": "x" * 7000, "shapes": {f"input{i}": "1" for i in range(200)}}))
    assert len(found) == 100
    assert len(found["long"]) == 6000


def test_tags_tell_the_outcome() -> None:
    found = entry.tags(_report())
    assert found["compressor.verdict"] == "pass"
    assert found["compressor.chosen"] == "int8"
    assert found["compressor.original_sha256"] == "ab12"
    assert found["compressor.report"] == "2026-03-04T05:06:07+00:00 ab12"


def test_tags_name_the_points_whose_percentiles_are_lower_limits() -> None:
    assert entry.tags(REPORT)["int8.overloaded"] == "batch 8"
    trial = _report().trials[0]
    assert trial.measurement
    growing = replace(trial.measurement, latency=replace(LATENCY, growing=True))
    found = entry.tags(replace(_report(), trials=(replace(trial, measurement=growing),)))
    assert found["int8.overloaded"] == "main load"
    assert not [tag for tag in entry.tags(_report()) if tag.endswith("overloaded")]


def test_artifact_tags_count_every_file() -> None:
    files = (r.File("a.onnx", "11", 5), r.File("a.data", "22", 70))
    found = entry.artifact_tags((r.Artifact("onnxruntime", "cpu", files, 0.0, {}),))
    assert found["compressor.sha256"] == "11"
    assert found["compressor.size_bytes"] == "75"


def test_a_short_description_is_the_whole_report() -> None:
    assert entry.description("# net: pass\n") == "# net: pass\n"


def test_a_long_description_loses_its_folded_part_first() -> None:
    text = entry.description("# net\n\nshort\n<details>\n" + "x" * 6000 + "\n</details>\n")
    assert text.startswith("# net\n\nshort\n")
    assert "details" not in text
    assert "report.md" in text


def test_a_longer_description_ends_with_a_whole_line() -> None:
    lines = [f"line {number}" for number in range(2000)]
    kept, _, note = entry.description("\n".join(lines)).partition("\n\n(")
    assert kept.splitlines() == lines[: len(kept.splitlines())]
    assert 4900 < len(kept) + len(note) <= 5000
