"""Requests that come one by one: how far apart, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_choose import LATENCY

from compressor.bench.load import Closed
from compressor.bench.measure import Experiment, Measured
from compressor.pipeline import timing
from compressor.pipeline.timing import Spot
from compressor.records import Tensor
from compressor.samples import synthetic

SAMPLES = synthetic([Tensor("x", "float32", ("n", 2))], {"x": (8, 2)}, 40, 0, {})
MAIN = Spot(Experiment(Closed(), (), 10.0, 0, {"x": "8x2"}, ratios=(1.0,)), SAMPLES)


def paced(p50_ms: float, wanted_s: float | None) -> list[Spot]:
    return list(timing._paced(MAIN, Measured(replace(LATENCY, p50_ms=p50_ms), None, ()), wanted_s))


@pytest.mark.parametrize(
    ("p50_ms", "rate", "budget_s"),
    [
        (0.1, 100, 0.7),  # at least 10 ms apart
        (25, 10, 2.0),  # a quarter busy, for twenty requests
        (125, 2, 10.0),
    ],
)
def test_requests_are_apart_and_few_enough(p50_ms: float, rate: float, budget_s: float) -> None:
    (spot,) = paced(p50_ms, 0.7)
    assert spot.experiment.load.rate == pytest.approx(rate)  # type: ignore[union-attr]
    assert spot.experiment.budget_s == pytest.approx(budget_s)
    assert (spot.experiment.at, spot.experiment.targets, spot.experiment.ratios) == ("paced", (), ())


def test_a_model_too_slow_for_the_budget_is_not_paced() -> None:
    assert paced(200, 0.7) == []
    assert paced(1, None) == []


def test_a_large_batch_has_fewer_feeds() -> None:
    assert [feeds["x"].shape for feeds in timing._feeds(SAMPLES)] == [(8, 2), (8, 2)]
