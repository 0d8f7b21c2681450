"""What the figures draw, held against what the samples and the records say."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from illustrated import AUDIT, ENGINES, FULL, GROUPS, INT8, LATENCIES_MS

from compressor import records as r
from compressor.formats import figures
from compressor.formats.figures import channels, errors, figure, front, integers, latency, operators, sizes, speed
from compressor.formats.figures.stages import first
from compressor.formats.staged import staged


def _series(name: str) -> figure.Series:
    return next(one for one in figure.series(FULL) if one.trial.rung == name)


@pytest.mark.parametrize("name", sorted(LATENCIES_MS))
def test_a_distribution_says_what_share_of_the_calls_came_within_a_time(name: str) -> None:
    taken = LATENCIES_MS[name]
    levels = list(latency.points(_series(name), ["", "batch 8"]))
    main = [level for level in levels if level.k == 0]
    assert len(main) >= 100
    for level in main:
        within = float(np.mean(taken <= level.ms))
        assert within >= level.share - 1e-9
        assert within <= level.share + 1 / len(taken) + 1e-9
    assert main[-1].ms == taken.max()
    assert main[0].ms == taken.min()


def test_the_percentile_of_the_gate_stands_with_its_limits() -> None:
    (main, *_) = latency.limits(_series("int8"), ["", "batch 8"])
    expected = float(np.percentile(LATENCIES_MS["int8"], 99, method="inverted_cdf"))
    assert main.ms == expected
    assert main.high == pytest.approx(expected * 1.2)
    assert (main.limit, main.share, main.asked) == (8.0, 0.99, "p99 ≤ 8 ms")


def test_a_limit_far_away_is_told_and_not_drawn() -> None:
    made = latency.figure(_bounded(r.Bound(99.0, 0.95, 1.9, 1.8, 2.2, 1e6)))
    assert made
    assert "The limit lies far off this figure: p99 ≤ 1,000 s." in made.caption
    made = latency.figure(_bounded(r.Bound(50.0, 0.95, 1.2, 1.1, 1.3, 1e-6), r.Bound(99.0, 0.95, 1.9, 1.8, 2.2, 1e6)))
    assert made
    assert "These limits lie far off this figure: p50 ≤ 0.001 µs, p99 ≤ 1,000 s." in made.caption


def test_every_percentile_that_a_gate_asks_for_is_drawn() -> None:
    """That of a lower one may be the one that is missed."""
    report = _bounded(r.Bound(50.0, 0.95, 1.2, 1.1, 1.3, 1.0), r.Bound(99.0, 0.99, 1.9, 1.8, 2.2, 3.0))
    marks = list(latency.limits(figure.series(report)[0], [""]))
    assert [(mark.share, mark.ms, mark.high, mark.limit) for mark in marks] == [
        (0.5, 1.2, 1.3, 1.0),
        (0.99, 1.9, 2.2, 3.0),
    ]
    made = latency.figure(report)
    assert made
    assert "A dot is a percentile that a gate asks for" in made.caption
    spec = json.loads(made.spec(figures.PAPER))
    rules = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "rule" and "strokeDash" in layer["mark"])
    rows = spec["datasets"][rules["data"]["name"]]
    assert [(row["asked"], row["x"]) for row in rows] == [("p50 ≤ 1 ms", 1.0), ("p99 ≤ 3 ms", 3.0)]
    assert rows[0]["y"] - rows[1]["y"] >= 12  # words that stand beside each other are not written over each other


def _bounded(*bounds: r.Bound) -> r.Report:
    """Give a report of the original alone, whose gates ask for these."""
    assert INT8.measurement
    measured = replace(INT8.measurement, latency=replace(INT8.measurement.latency, bounds=bounds))
    return replace(FULL, baseline=replace(INT8, rung="baseline", measurement=measured), trials=())


def test_a_report_from_before_distributions_were_kept_has_no_such_figure() -> None:
    assert INT8.measurement
    old = replace(
        INT8, measurement=replace(INT8.measurement, latency=replace(INT8.measurement.latency, quantiles_ms=()))
    )
    assert latency.figure(replace(FULL, baseline=old, trials=())) is None


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1)) | st.tuples(st.integers(1, 4), st.integers(0, 3))),
    st.booleans(),
)
def test_the_front_is_what_no_other_one_beats(points: list[tuple[float, float]], less: bool) -> None:  # noqa: FBT001
    def beaten(one: tuple[float, float]) -> bool:
        as_good = [(t, s) for t, s in points if t <= one[0] and (s <= one[1] if less else s >= one[1])]
        return any(other != one for other in as_good)

    expected = {i for i, one in enumerate(points) if not beaten(one)}
    assert front.undominated(points, less_is_better=less) == expected


def test_time_and_score_stand_with_their_limits() -> None:
    int8 = next(point for point in front.points(FULL) if point.series == "int8")
    p50 = float(np.percentile(LATENCIES_MS["int8"], 50, method="inverted_cdf"))
    assert (int8.ms, int8.left, int8.right) == (p50, pytest.approx(p50 * 0.98), pytest.approx(p50 * 1.02))
    assert (int8.score, int8.low, int8.high) == (0.745, 0.59, 0.89)


def test_a_speed_up_stands_with_its_interval_and_the_extremes_of_its_rounds() -> None:
    int8 = next(one for one in speed.speeds(FULL) if one.series == "int8")
    assert (int8.ratio, int8.low, int8.high, int8.slowest, int8.fastest) == (2.5, 2.25, 2.75, 2.125, 2.875)


def test_what_is_left_is_a_share_of_the_original() -> None:
    shares = {(one.rung, one.series): one.share for one in sizes.shares(FULL)}
    assert shares["int8", "file"] == 6_400_000 / 25_600_000
    assert shares["int8", "MACs"] == 1
    assert shares["int8", "parameters"] == 1
    assert ("int8-fused (2)", "file") not in shares  # it was not built


def test_the_times_of_operators_sum_to_the_whole_the_costliest_first() -> None:
    (one,) = (s for s in staged(FULL) if s.applied.stage == "quantize" and s.rungs == ("int8",))
    rows = list(operators.times(3, one))
    for what, field in (("before", "before_ms"), ("after", "now_ms")):
        total = sum(getattr(each, field) for each in AUDIT.operators)  # type: ignore[union-attr]
        assert math.isclose(sum(row.ms for row in rows if row.series == what), total)
    shown = [row.ms for row in rows if row.series == "before"][:-1]
    assert shown == sorted(shown, reverse=True)
    assert rows[-1].operator == "4 others"
    assert {row.k for row in rows} == {3}


def test_nodes_are_counted_by_how_they_compute_as_the_last_stage_left_them() -> None:
    rows = {(one.rung, one.series): (one.start, one.n) for one in integers.counts(FULL)}
    assert rows["int8-fused", "integer kernels"] == (0, 18)
    assert rows["int8-fused", "Conv, Gemm, MatMul in float"] == (18, 4)
    assert rows["int8-fused", "quantizing and back"] == (22, 3)
    assert not any(rung == "baseline" for rung, _ in rows)
    assert not list(integers.counts(ENGINES))  # no kernels of ONNX Runtime run there


@pytest.mark.parametrize(("stage", "shown"), [("quantize", True), ("fuse", False)])
def test_that_nothing_runs_as_integer_is_shown_of_what_was_quantized(stage: str, shown: bool) -> None:  # noqa: FBT001
    audit = replace(AUDIT, integer_nodes=0, integer={}, float_nodes=7, qdq_left=0)
    rung = replace(INT8, stages=(replace(INT8.stages[0], stage=stage, audit=audit),))
    rows = [(row.rung, row.series, row.n) for row in integers.counts(replace(FULL, trials=(rung,)))]
    found = zip(("integer kernels", "Conv, Gemm, MatMul in float", "quantizing and back"), (0, 7, 0), strict=True)
    assert rows == ([("int8", key, n) for key, n in found] if shown else [])


def test_channels_are_kept_or_gone_or_cannot_go() -> None:
    (one,) = (s for s in staged(FULL) if s.applied.pruned)
    rows = list(channels.groups(0, one))
    assert [(row.layer, row.series, row.n) for row in rows] == [
        ("conv1", "kept", 8),
        ("conv1", "gone", 8),
        ("conv2", "kept", 32),
        ("conv2", "gone", 0),
        ("fc", "cannot go", 10),
    ]
    assert sum(row.n for row in rows) == sum(group.channels for group in GROUPS)


def test_layers_stand_in_the_order_of_the_graph() -> None:
    (one, *_) = (s for s in staged(FULL) if s.applied.audit and s.applied.audit.errors)
    rows = list(errors.layers(0, one))
    assert [row.db for row in rows] == [30.0 - i % 7 for i in range(40)]
    assert [row.place for row in rows] == list(range(1, 41))


def test_a_stage_of_what_was_chosen_is_shown_first() -> None:
    found = staged(FULL)
    assert "int8" in found[first(found, FULL)].rungs
    fused = replace(FULL, chosen="int8-fused")
    assert "int8-fused" in found[first(found, fused)].rungs


@example(["a", "a (2)"])
@example(["a (2)", "a", "a (3)"])
@given(st.lists(st.text(max_size=60), max_size=6))
def test_no_two_labels_are_the_same(names: list[str]) -> None:
    labels = figure.distinct([*names, *names])
    assert len(set(labels)) == len(labels)


def test_a_rung_more_than_there_are_colours_begins_again_with_the_second() -> None:
    trials = tuple(r.Trial(f"rung{i}") for i in range(9))
    roles = [one.key.role for one in figure.series(replace(FULL, trials=trials))]
    assert roles == ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s1", "s2"]
