"""Flags over recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from compressor.bench.load import Constant, Load, Poisson, Trace
from compressor.engines import Auto, Onnxruntime
from compressor.errors import InputError
from compressor.gates import Accuracy, Latency, Size
from compressor.recipe import Evaluation, Overrides, Recipe, batches, default, override, parse


def test_without_flags_a_recipe_stays_as_it_is() -> None:
    assert override(default(), Overrides()) == default()


@pytest.mark.parametrize(
    ("text", "gate"), [("50ms", Latency(p99="50ms")), ("p95=150ms", Latency(p95="150ms")), ("p99.9=1s", None)]
)
def test_sla_means_the_p99_or_names_its_percentile(text: str, gate: Latency | None) -> None:
    found = override(default(), Overrides(sla=text)).gates[0]
    assert found == (gate or Latency.model_validate({"p99.9": "1s"}))


def test_sla_takes_the_place_of_the_recipes_latency_gates() -> None:
    asked = Recipe(gates=(Latency(p50="1ms"), Accuracy(max_drop="2%"), Latency(p99="9ms")))
    assert override(asked, Overrides(sla="50ms")).gates == (Latency(p99="50ms"), Accuracy(max_drop="2%"))


def test_reserve_and_max_drop_change_the_gates_that_are_there() -> None:
    changed = override(default(), Overrides(sla="50ms", reserve="5ms", max_drop="2%"))
    assert changed.gates == (Latency(p99="50ms", reserve="5ms"), Accuracy(max_drop="2%"))


def test_max_drop_adds_a_gate_where_there_is_none() -> None:
    asked = Recipe(gates=(Latency(p99="9ms"),))
    assert override(asked, Overrides(max_drop="3%")).gates == (Latency(p99="9ms"), Accuracy(max_drop="3%"))


def test_shapes_data_registry_and_threads() -> None:
    flags = Overrides(
        calibration=Path("c.npz"),
        evaluation=Path("e.npz"),
        shapes=("input.1:0=1x3x8x8", "a=b=2"),
        registry="none",
        name="m",
        threads=3,
    )
    changed = override(parse("data: {calibration: {path: x.npz, samples: 7}}", "r"), flags)
    assert changed.shapes == {"input.1:0": (1, 3, 8, 8), "a=b": (2,)}
    assert changed.data.calibration is not None
    assert (changed.data.calibration.path, changed.data.calibration.samples) == (Path("c.npz"), 7)
    scored = override(
        parse("data: {evaluation: {samples: 9}}", "r"), Overrides(evaluation=Path("e.npz"))
    ).data.evaluation
    assert scored == Evaluation(path=Path("e.npz"), samples=9)
    assert (changed.registry.uri, changed.registry.name) == ("none", "m")
    assert changed.engine == Onnxruntime(threads=3)
    assert override(default(), Overrides()).engine == Auto()


def test_threads_keep_what_else_the_recipe_says_of_the_engine() -> None:
    asked = Recipe(engine=Onnxruntime(threads=1, spinning=True))
    assert override(asked, Overrides(threads=2)).engine == Onnxruntime(threads=2, spinning=True)


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("200/s", Constant(rate="200/s")),
        ("poisson:2/min", Poisson(rate="2/min")),
        ("arrivals.csv", Trace(path="arrivals.csv")),
    ],
)
def test_a_rate_is_a_load(text: str, load: Load) -> None:
    assert override(default(), Overrides(rate=text)).load == load


def test_duration_metric_and_engine() -> None:
    changed = override(default(), Overrides(duration="30s", metric="top5", engine="onnxruntime", threads=2))
    assert (changed.limits.measure, changed.limits.seconds) == (30, default().limits.seconds)
    assert changed.data.metric == "top5"
    assert changed.engine == Onnxruntime(threads=2)


def test_an_engine_that_is_named_again_keeps_its_settings() -> None:
    asked = Recipe(engine=Onnxruntime(threads=3))
    assert override(asked, Overrides(engine="onnxruntime")).engine == Onnxruntime(threads=3)
    assert override(asked, Overrides(engine="auto")).engine == Auto()


def test_flags_leave_gates_that_they_do_not_mean_alone() -> None:
    asked = Recipe(gates=(Size(max="1MB"), Accuracy(max_drop="1%")))
    assert override(asked, Overrides(sla="5ms", max_drop="2%")).gates == (
        Latency(p99="5ms"),
        Size(max="1MB"),
        Accuracy(max_drop="2%"),
    )


def test_batch_sizes_keep_their_order() -> None:
    assert batches("4, 1,65536") == (4, 1, 65536)


@pytest.mark.parametrize("text", ["", "1,", "0", "65537", "1.5", "-1", "two", "1,²", "9" * 5000])
def test_what_is_no_batch_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--batch: expected whole numbers from 1 to 65536"):
        batches(text)


def test_a_batch_size_that_stands_twice_is_refused() -> None:
    with pytest.raises(InputError, match="--batch: 2 stands twice"):
        batches("1,2,4,02")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Overrides(sla="50"), "--sla: p99: expected a time such as 50ms, found '50'"),
        (Overrides(sla="p42=50ms"), "--sla: expected one of p50, p90, p95, p99, p99.9 before the =, found 'p42'"),
        (Overrides(sla="0ms"), "--sla: expected a time above 0, found 0ms"),
        (Overrides(reserve="5ms"), "--reserve keeps part of a latency budget, but there is none"),
        (Overrides(sla="5ms", reserve="5ms"), "--reserve: expected a reserve below p99"),
        (Overrides(max_drop="1"), "--max-drop: expected a percentage such as 20%, found '1'"),
        (Overrides(shapes=("1x3",)), "--shape: expected NAME=DIMENSIONS such as input=1x3x224x224, found '1x3'"),
        (Overrides(shapes=("x=1xa",)), "--shape: expected a shape of whole numbers"),
        (Overrides(threads=0), "--threads: expected greater than or equal to 1, found 0"),
        (Overrides(threads=5000), "--threads: expected less than or equal to 4096, found 5000"),
        (Overrides(max_drop="200%"), "--max-drop: expected a percentage from 0% to 100%, found '200%'"),
        (Overrides(sla="5ms", reserve="x"), "--reserve: expected a time such as 50ms, found 'x'"),
        (Overrides(name="a/b"), "--registry or --name: name: "),
        (Overrides(rate="poisson:fast"), "--rate: expected a rate above 0 such as 200/s or poisson:200/s, found "),
        (Overrides(rate="0/s"), "--rate: expected a rate above 0"),
        (Overrides(duration="30"), "--duration: measure: expected a time such as 50ms, found '30'"),
        (Overrides(duration="0s"), "--duration: measure: expected greater than 0, found 0"),
        (Overrides(engine="tensorrt"), "--engine: expected one of auto, onnxruntime, found 'tensorrt'"),
    ],
)
def test_a_wrong_flag_is_named(flags: Overrides, message: str) -> None:
    with pytest.raises(InputError) as caught:
        override(default(), flags)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1
