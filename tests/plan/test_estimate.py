"""How long a run will take: what the estimate adds up, what it grows with, and what it never exceeds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from compressor import recipe
from compressor.plan.estimate import Estimate, Scale, estimate
from compressor.recipe import Recipe

SCALE = Scale(call_s=0.002, calibration=160, evaluation=600, ways=3)
LADDER = recipe.parse("gates: [{latency: {p99: 5ms}}]", "r")


def read(text: str) -> Recipe:
    return recipe.parse(text, "r")


def took(asked: Recipe = LADDER, **changes: Any) -> Estimate:
    return estimate(asked, replace(SCALE, **changes))


def test_the_least_is_the_baseline_and_the_first_rung_and_the_most_is_all() -> None:
    found = Estimate(3.0, (5.0, 7.0, 11.0))
    assert (found.least_s, found.most_s) == (8.0, 26.0)
    assert len(took().rungs_s) == len(LADDER.rungs)
    assert 0 < took().baseline_s < took().least_s < took().most_s


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("call_s", (0.0001, 0.002, 0.05, 1.0)),
        ("calibration", (0, 16, 200, 1000)),
        ("evaluation", (0, 100, 10_000)),
        ("ways", (0, 1, 3, 5)),
        ("others", ((), (1.0,), (8.0, 8.0))),
    ],
)
def test_more_of_anything_takes_no_less(field: str, values: tuple[Any, ...]) -> None:
    found = [took(**{field: value}).most_s for value in values]
    assert all(one <= other for one, other in pairwise(found))
    assert found[0] < found[-1]


def test_what_a_rung_shares_with_one_before_it_is_made_once() -> None:
    shared = read("rungs: [{name: a, stages: [quantize]}, {name: b, stages: [quantize, fuse]}]")
    alone = read("rungs: [{name: b, stages: [quantize, fuse]}]")
    other = read("rungs: [{name: a, stages: [fuse]}, {name: b, stages: [quantize, fuse]}]")
    first, second = took(shared).rungs_s
    assert second < first
    assert second < took(alone).rungs_s[0]
    assert took(other).rungs_s[1] == took(alone).rungs_s[0]


def test_a_named_way_takes_less_than_a_search() -> None:
    named = read("rungs: [{name: a, stages: [{quantize: {scheme: static}}]}]")
    search = read("rungs: [{name: a, stages: [quantize]}]")
    assert took(named).most_s < took(search).most_s


def test_recovery_takes_its_minutes() -> None:
    def recovered(minutes: int) -> float:
        text = f"rungs: [{{name: a, stages: [{{prune: {{ratio: 20%}}}}, {{recover: {{minutes: {minutes}}}}}]}}]"
        return took(read(text)).most_s

    assert recovered(7) - recovered(2) == pytest.approx(300)


def test_a_measurement_takes_no_longer_than_it_may() -> None:
    quick, slow = (
        took(read(f"limits: {{measure: {limit}}}\nrungs: [{{name: a, stages: [fuse]}}]"), call_s=10.0, evaluation=0)
        for limit in ("10s", "60s")
    )
    assert slow.baseline_s - quick.baseline_s == pytest.approx(50)
    assert slow.rungs_s[0] - quick.rungs_s[0] == pytest.approx(50)


def test_what_is_not_measured_here_takes_less_and_gates_on_speed_and_starts_take_more() -> None:
    assert took(timed=False).most_s < took().most_s
    for gate in ("speedup: {min: 1.1x}", "throughput: {min: 5/s}", "startup: {max: 5s}"):
        assert took(read(f"gates: [{{latency: {{p99: 5ms}}}}, {{{gate}}}]")).most_s > took().most_s
    assert took(read("load: {poisson: {rate: 5/s}}")).most_s > took().most_s


def test_the_whole_run_takes_no_longer_than_it_may() -> None:
    whole = took()
    for limit_s in (1, round(whole.baseline_s) + 5, round(whole.most_s) - 5, round(whole.most_s) + 60):
        found = took(read(f"limits: {{run: {limit_s}s}}"))
        assert found.most_s == pytest.approx(min(whole.most_s, limit_s))
        assert all(rung_s >= 0 for rung_s in found.rungs_s)


def test_a_champion_costs_a_measurement_more_of_each() -> None:
    alone, beside = took(), took(read("gates: [{latency: {p99: 5ms}}]\nbaseline: models:/net@champion"))
    assert beside.baseline_s == alone.baseline_s
    assert all(one < other for one, other in zip(alone.rungs_s, beside.rungs_s, strict=True))
