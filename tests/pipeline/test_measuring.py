"""What is made of starts and times: the usual start, the highest memory, the cost, and what each point asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_choose import LATENCY

from compressor import recipe
from compressor.bench.start import Start
from compressor.engines import Onnxruntime
from compressor.isolation import Returned
from compressor.pipeline import measuring
from compressor.pipeline.built import Built
from compressor.pipeline.measuring import Scene
from compressor.plan import Point
from compressor.records import Artifact, File, Target, Tensor
from compressor.samples import synthetic

SAMPLES = synthetic([Tensor("x", "float32", ("n", 2))], {"x": (1, 2)}, 4, 0, {})
BUILT = Built(Onnxruntime(), Artifact("onnxruntime", "cpu", (File("a", "", 30), File("b", "", 4)), 0.0, {}))


def scene(text: str) -> Scene:
    points = (Point("", {"x": (1, 2)}, SAMPLES), Point("batch 4", {"x": (4, 2)}, SAMPLES))
    return Scene(recipe.parse(text, "r"), points, Path(), Path("raw"), ratios=(1.2,))


def test_the_usual_start_and_the_highest_memory_of_all_starts_are_taken() -> None:
    begun = [Returned(Start(load, cold), 0.0, memory) for load, cold, memory in ((9, 1, 7), (1, 2, 9), (3, 4, 8))]
    made = measuring._put_together(BUILT, begun, replace(LATENCY, throughput_per_s=50.0), scene("{}"))
    assert (made.latency.load_ms, made.latency.cold_ms) == (3, 4)
    assert (made.memory_bytes, made.size_bytes, made.throughput_per_s) == (9, 34, 50.0)
    assert made.startup is not None
    assert (made.startup.percentile, made.startup.value_ms) == (50, 7)
    assert made.cost_per_million is None


def test_a_price_makes_a_cost_of_the_throughput_where_that_is_what_could_be_answered() -> None:
    priced, begun = scene("gates: [{cost: {max: 9 USD/1M, per_hour: 0.36}}]"), [Returned(Start(1, 1), 0.0, 1)]
    closed = replace(LATENCY, throughput_per_s=50.0)
    assert measuring._put_together(BUILT, begun, closed, priced).cost_per_million == pytest.approx(2.0)
    assert measuring._put_together(BUILT, begun, replace(closed, offered_per_s=50.0), priced).cost_per_million is None


def test_each_point_asks_what_gates_want_decided_there() -> None:
    gates = """
        gates:
          - latency: {p99: 10ms}
          - latency: {p90: 20ms, at: {batch: 4}}
          - throughput: {min: 30/s}
          - throughput: {min: 40/s, at: {batch: 4}}
          - cost: {max: 2 USD/1M, per_hour: 0.36}
        limits: {measure: 3s}
        """
    asking = scene(gates)
    main, other = (measuring._spot(point, asking, "int8") for point in asking.points)
    assert main.experiment.targets == (Target(99, 0.95, 10.0),)
    assert other.experiment.targets == (Target(90, 0.95, 20.0),)
    assert sorted(main.experiment.rates) == pytest.approx([30, 50]), "0.36 USD an hour is 1e-4 USD a second"
    assert other.experiment.rates == (40,)
    assert (main.experiment.ratios, other.experiment.ratios) == ((1.2,), ())
    assert (main.raw, other.raw) == (Path("raw/int8.npy"), Path("raw/int8-batch_4.npy"))
    assert (other.experiment.at, other.experiment.shape, other.experiment.budget_s) == ("batch 4", {"x": "4x2"}, 3.0)
