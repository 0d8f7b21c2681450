"""The champion as a gate: how it is read, and what a rung beside it must show."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from trials import TIMES, read

from compressor import recipe
from compressor.errors import InputError
from compressor.gates import Champion
from compressor.records import Artifact, Beside, Bound, Measurement, Score, Served, Size, Speedup, Trial, Verdict

ASKED = Champion(model="models:/net@champion")
CHAMPION = Measurement(1, TIMES, 25.0, 100_000)
SERVED = Served("models:/net/3", "net", "3", Size(1000, 200, 5000, 50), Artifact("onnxruntime", "cpu", (), 0.0, {}))
SAME = Speedup(1.0, 0.99, 1.01, rounds=8, lowest=0.98, highest=1.02)
SCORE = Score("top1", 0.8, 400, 0.75, 0.85, drop=0.008, drop_low=-0.002, drop_high=0.018)
BEFORE = Score("top1", 0.808, 400, 0.76, 0.85)
LEVEL = Beside(CHAMPION, replace(CHAMPION, speedup=SAME), BEFORE, SCORE)


def tolerant(**tolerance: str) -> Champion:
    return Champion.model_validate({"model": "models:/net@champion", "tolerance": tolerance})


def rung(beside: Beside | None = LEVEL, *, size: Size = SERVED.model, **measured: Any) -> Trial:
    measurement = replace(CHAMPION, size_bytes=size.size_bytes, **measured)
    return Trial("int8", measurement=measurement, model=size, beside=beside)


def verdicts(asked: Champion, trial: Trial, *gates: Any) -> dict[str, Verdict]:
    found = asked.judge([read(gate) for gate in gates], SERVED, trial)
    assert len({verdict.gate for verdict in found}) == len(found)
    return {verdict.gate: verdict for verdict in found}


def paced(speedup: Speedup | None) -> Trial:
    return rung(replace(LEVEL, now=replace(CHAMPION, speedup=speedup)))


def scored(score: Score | None, champion: Score | None = BEFORE, why: str = "") -> Trial:
    return rung(replace(LEVEL, champion_score=champion, score=score, unscored=why))


def accuracy(asked: Champion, trial: Trial, *gates: Any) -> Verdict:
    return verdicts(asked, trial, *gates)["champion accuracy"]


def test_a_name_alone_and_a_mapping_are_read_alike() -> None:
    assert Champion.model_validate("models:/net@champion") == ASKED
    assert recipe.parse("baseline: models:/net@champion", "r").baseline == ASKED
    assert recipe.parse("baseline: {model: 'models:/net/12'}", "r").baseline == Champion(model="models:/net/12")
    text = "baseline: {model: models:/net@champion, tolerance: {speed: 5%, accuracy: 0.5%, startup: 30%}}"
    read_ = recipe.parse(text, "r").baseline
    assert read_ is not None
    assert (read_.tolerance.speed, read_.tolerance.accuracy, read_.tolerance.startup) == (0.05, 0.005, 0.3)
    assert (read_.tolerance.size, read_.tolerance.memory) == (0.02, 0.05)
    assert read_.slowest() == pytest.approx(1 / 1.05)


def test_what_is_read_is_written_and_read_again() -> None:
    asked = recipe.parse("baseline: {model: models:/net@champion, tolerance: {speed: 5%}}", "r")
    assert recipe.of_report(asked.model_dump(mode="json", by_alias=True, exclude_none=True), "r").baseline == (
        asked.baseline
    )


@pytest.mark.parametrize(
    "name",
    ["net@champion", "models:/net", "models:/", "models:/@champion", "models:/net@", "models:/net/", "models:/@", ""],
)
def test_a_name_that_is_none_is_refused_with_what_is_one(name: str) -> None:
    with pytest.raises(InputError, match=r"baseline.*expected models:/NAME@ALIAS or models:/NAME/VERSION, found"):
        recipe.parse(f"baseline: '{name}'", "r")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{model: models:/net/1, tolerence: {}}", "tolerance"),
        ("{model: models:/net/1, tolerance: {sped: 2%}}", "speed"),
        ("{model: models:/net/1, tolerance: {speed: 2}}", "expected a percentage such as 20%"),
        ("{model: models:/net/1, tolerance: {speed: -2%}}", "expected a percentage"),
        ("{tolerance: {speed: 2%}}", "model"),
        ("3", "baseline"),
    ],
)
def test_what_no_recipe_may_say_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        recipe.parse(f"baseline: {text}", "r")


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("models:/net@champion", True),
        ({"model": "models:/net/3"}, True),
        ({"model": "models:/net/3", "tolerance": {"speed": "5%", "nodes": "0%"}}, True),
        (None, True),
        ("net@champion", False),
        ({"tolerance": {"speed": "5%"}}, False),
        ({"model": "models:/net/3", "tolerance": {"sped": "5%"}}, False),
        ({"model": "models:/net/3", "tolerance": {"speed": 0.05}}, False),
        (7, False),
    ],
)
def test_the_schema_says_what_the_reader_takes(value: Any, valid: bool) -> None:  # noqa: FBT001
    validator = jsonschema.Draft202012Validator(recipe.schema())
    assert validator.is_valid({"version": 1, "baseline": value}) is valid
    if valid:
        recipe.Recipe.model_validate({"baseline": value})
    else:
        with pytest.raises(ValidationError):
            recipe.Recipe.model_validate({"baseline": value})


def test_a_rung_that_is_level_with_the_champion_meets_speed_and_accuracy() -> None:
    found = verdicts(ASKED, rung())
    assert {gate: verdict.met for gate, verdict in found.items()} == {
        "champion speed": True,
        "champion accuracy": True,
    }
    speed = found["champion speed"]
    assert (speed.observed, speed.low, speed.high, speed.unit) == (1.0, 0.99, 1.01, "x")
    assert speed.limit == pytest.approx(1 / 1.02)


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [
        (1 / 1.05, 1.2, True),  # 5 % longer at the most, exactly the tolerance
        (1 / 1.0501, 1.2, None),
        (0.5, 1 / 1.05, None),  # it may be exactly 5 %
        (0.5, 1 / 1.0501, False),
        (2.0, 3.0, True),
    ],
)
def test_speed_is_judged_by_the_whole_interval_at_the_edge_of_the_tolerance(low: float, high: float, met: Any) -> None:
    found = verdicts(tolerant(speed="5%"), paced(Speedup((low + high) / 2, low, high)))["champion speed"]
    assert found.met is met
    assert ("more pairs would" in found.reason) == (met is None)


def test_without_tolerance_no_longer_is_no_longer() -> None:
    strict = tolerant(speed="0%")
    assert verdicts(strict, paced(Speedup(1.1, 1.0, 1.2)))["champion speed"].met is True
    assert verdicts(strict, paced(Speedup(0.98, 0.97, 0.999)))["champion speed"].met is False


@pytest.mark.parametrize(
    ("lowest", "highest", "rounds", "met"),
    [(0.7, 0.9, 8, False), (0.7, 1.1, 8, None), (0.7, 0.9, 4, None), (1.0, 1.4, 8, None)],
)
def test_on_a_busy_machine_every_round_must_show_it(lowest: float, highest: float, rounds: int, met: Any) -> None:
    busy = Speedup(0.8, 0.78, 0.82, rounds=rounds, lowest=lowest, highest=highest, stalled=0.8)
    found = verdicts(ASKED, paced(busy))["champion speed"]
    assert found.met is met
    if met is None:
        assert "use a quieter machine" in found.reason
    calm = replace(busy, stalled=0.1)
    assert verdicts(ASKED, paced(calm))["champion speed"].met is False


def test_too_few_pairs_decide_nothing() -> None:
    found = verdicts(ASKED, paced(None))["champion speed"]
    assert (found.met, found.observed) == (None, None)
    assert found.reason == (
        "too few pairs with the champion were measured: measure longer (limits.measure, or --duration)"
    )


def test_what_was_built_for_a_device_that_is_not_here_is_undecided_in_speed() -> None:
    beside = Beside(champion_score=BEFORE, score=SCORE)
    found = verdicts(ASKED, rung(beside), {"memory": {"max": "1GB"}}, {"startup": {"max": "1s"}})
    assert {gate: verdict.met for gate, verdict in found.items()} == {
        "champion speed": None,
        "champion accuracy": True,
        "champion memory": None,
        "champion startup": None,
    }
    assert "nothing was timed here" in found["champion memory"].reason


def test_a_champion_that_cannot_be_run_leaves_undecided_what_needs_a_run() -> None:
    beside = Beside(champion_score=BEFORE, score=SCORE, failure="models:/net/3 cannot be measured: it crashed")
    found = verdicts(ASKED, rung(beside), {"startup": {"max": "1s"}})
    for gate in ("champion speed", "champion startup"):
        assert (found[gate].met, found[gate].reason) == (None, "models:/net/3 cannot be measured: it crashed")


DROP = {"accuracy": {"max_drop": "0.5%"}}


@pytest.mark.parametrize(
    ("asked", "gates", "limit", "met"),
    [
        (ASKED, (), 0.01, True),  # nobody asks: 1 %
        (ASKED, (DROP,), 0.005, False),
        (ASKED, ({"accuracy": {"max_drop": "0.8%"}},), 0.008, True),  # exactly
        (tolerant(accuracy="2%"), (DROP,), 0.02, True),
        (tolerant(accuracy="0.1%"), (), 0.001, False),
        (ASKED, ({"accuracy": {"max_drop": "0.5%", "min": 0.99}},), 0.005, False),
        (tolerant(accuracy="1%"), ({"accuracy": {"min": 0.99}},), 0.01, True),  # min is of a gate of its own
    ],
)
def test_a_score_may_drop_by_what_is_allowed(asked: Champion, gates: Any, limit: float, met: bool) -> None:  # noqa: FBT001
    found = accuracy(asked, scored(SCORE), *gates)
    assert (found.met, found.limit, found.observed) == (met, limit, 0.008)
    assert "top1 drops by 0.80% (95% interval -0.20% to 1.80%)" in found.reason


def test_where_only_a_least_value_is_asked_what_is_served_may_lose_one_per_cent() -> None:
    """Else a champion of 90 % could be followed by one of 71 %, and that by none."""
    met = accuracy(ASKED, scored(SCORE), {"accuracy": {"min": 0.1}})
    assert (met.met, met.limit) == (True, 0.01)
    lost = replace(SCORE, value=0.79, drop=0.018, drop_low=0.01, drop_high=0.03)
    assert accuracy(ASKED, scored(lost), {"accuracy": {"min": 0.1}}).met is False


DB = Score("sqnr", 40.0, 400, 39.5, 40.5)


@pytest.mark.parametrize(("drop", "met"), [(1.9, True), (2.1, False)])
def test_of_decibels_a_share_of_the_champion_s_value_may_be_lost(drop: float, met: bool) -> None:  # noqa: FBT001
    now = Score("sqnr", 40.0 - drop, 400, 37.0, 39.0, drop=drop, drop_low=drop - 0.2, drop_high=drop + 0.2)
    found = accuracy(tolerant(accuracy="5%"), scored(now, DB), {"accuracy": {"min": 30}})
    assert (found.met, found.limit) == (met, 0.05)
    assert found.observed == pytest.approx(drop / 40)
    assert (found.low, found.high) == (pytest.approx((drop - 0.2) / 40), pytest.approx((drop + 0.2) / 40))


@pytest.mark.parametrize("value", [90.0, -50.0])
def test_of_a_metric_of_one_s_own_the_tolerance_has_to_be_said(value: float) -> None:
    before = Score("m:f", value, 400, value - 1, value + 1)
    now = Score("m:f", value - 2, 400, value - 3, value - 1, drop=2.0, drop_low=1.5, drop_high=2.5)
    found = accuracy(ASKED, scored(now, before), {"accuracy": {"min": -99}})
    assert (found.met, "tolerance: {accuracy: 5%}" in found.reason) == (None, True)
    for share, met in (("5%", True), ("1%", False)):
        found = accuracy(tolerant(accuracy=share), scored(now, before), {"accuracy": {"min": -99}})
        assert (found.met, found.observed) == (met, pytest.approx(2 / abs(value)))


def test_a_tolerance_in_decibels_has_to_be_said() -> None:
    gates = [read({"accuracy": {"min": 30}})]
    assert ASKED.unfit(gates, "sqnr") == (
        "sqnr is no share, of which 1 % could be lost: say how much of the champion's, as tolerance: {accuracy: 5%}"
    )
    assert tolerant(accuracy="5%").unfit(gates, "sqnr") is None
    assert ASKED.unfit(gates, "top1") is None
    assert ASKED.unfit([], "sqnr") is not None


@pytest.mark.parametrize(
    ("low", "high", "met"), [(-0.01, 0.01, True), (-0.01, 0.011, None), (0.0101, 0.02, False), (0.01, 0.02, None)]
)
def test_a_gate_that_judges_the_interval_judges_it_here_too(low: float, high: float, met: Any) -> None:
    gate = {"accuracy": {"max_drop": "1%", "confidence": "95%"}}
    found = accuracy(ASKED, scored(replace(SCORE, drop=0.01, drop_low=low, drop_high=high)), gate)
    assert found.met is met
    assert ("evaluate on more" in found.reason) == (met is None)


def test_without_scores_accuracy_is_undecided_and_says_why() -> None:
    found = accuracy(ASKED, scored(None, None, "no evaluation data: give --evaluation"))
    assert (found.met, found.observed, found.reason) == (None, None, "no evaluation data: give --evaluation")


def test_a_few_samples_show_no_drop() -> None:
    found = accuracy(ASKED, scored(replace(SCORE, n=29, drop=0.0)))
    assert found.met is None
    assert "evaluate on at least 30" in found.reason


@pytest.mark.parametrize(("growth", "met"), [(0.01, True), (0.011, False), (-0.5, True)])
def test_an_error_may_grow_by_a_share_of_the_champion_s(growth: float, met: bool) -> None:  # noqa: FBT001
    before = Score("mae", 12.0, 400, 11.0, 13.0, relative=True)
    now = replace(before, value=12.0 * (1 + growth), drop=growth, drop_low=growth, drop_high=growth)
    found = accuracy(ASKED, scored(now, before))
    assert found.met is met
    assert f"mae grows by {growth:.2%} of itself" in found.reason


def test_a_rung_that_is_broken_is_worse_and_a_champion_that_is_broken_says_nothing() -> None:
    broken = replace(SCORE, value=math.nan, drop=math.inf, drop_low=math.inf, drop_high=math.inf)
    assert accuracy(ASKED, scored(broken)).met is False
    found = accuracy(ASKED, scored(replace(SCORE, drop=math.inf), replace(BEFORE, value=math.nan)))
    assert found.met is None
    assert "top1 of the champion is not a finite number" in found.reason


COUNTED = {"size": "size_bytes", "macs": "macs", "parameters": "parameters", "nodes": "nodes"}


@pytest.mark.parametrize(("gate", "field"), list(COUNTED.items()))
@pytest.mark.parametrize("share", ["0%", "2%", "13%", "15%", "2.5%"])
def test_what_is_counted_may_grow_by_the_tolerance_where_a_gate_asks_for_it(gate: str, field: str, share: str) -> None:
    before = getattr(SERVED.model, field)
    most = before * round(1000 + 10 * float(share.rstrip("%"))) // 1000
    limit = {gate: {"max": "1GB" if gate == "size" else "1G"}}
    asked = tolerant(**{gate: share})
    for value, met in ((most, True), (most + 1, False)):
        found = verdicts(asked, rung(size=replace(SERVED.model, **{field: value})), limit)
        assert found.keys() == {"champion speed", "champion accuracy", f"champion {gate}"}
        verdict = found[f"champion {gate}"]
        assert (verdict.met, verdict.observed, verdict.limit) == (met, value, most)
        assert verdict.unit == ("B" if gate == "size" else "")
        assert f"the champion's {before:,} and {share}" in verdict.reason


@given(st.integers(0, 10**12), st.integers(0, 1000))
def test_the_limit_is_exact(before: int, per_mille: int) -> None:
    served = replace(SERVED, model=replace(SERVED.model, size_bytes=before))
    asked = tolerant(size=f"{per_mille / 10:.1f}%")
    found = asked.judge([read({"size": {"max": "1GB"}})], served, rung())[-1]
    assert found.limit == before * (1000 + per_mille) // 1000


def test_nothing_is_asked_of_a_size_that_no_gate_asks_for() -> None:
    huge = rung(size=Size(10**9, 10**9, 10**9, 10**9))
    assert verdicts(ASKED, huge).keys() == {"champion speed", "champion accuracy"}


def test_counts_that_nobody_knows_are_undecided() -> None:
    gates = ({"macs": {"max": "1G"}}, {"size": {"max": "1GB"}})
    found = verdicts(ASKED, rung(size=replace(SERVED.model, macs=None)), *gates)
    assert (found["champion macs"].met, found["champion size"].met) == (None, True)
    unknown = replace(SERVED, model=replace(SERVED.model, macs=None))
    (verdict,) = [v for v in ASKED.judge([read(gates[0])], unknown, rung()) if v.gate == "champion macs"]
    assert (verdict.met, verdict.reason) == (None, "the champion's MACs are not known")


@pytest.mark.parametrize(("memory", "met"), [(105_000, True), (105_001, False), (None, None), (50_000, True)])
def test_memory_may_grow_by_the_tolerance(memory: int | None, met: Any) -> None:
    beside = replace(LEVEL, now=replace(CHAMPION, memory_bytes=memory, speedup=SAME))
    found = verdicts(ASKED, rung(beside), {"memory": {"max": "1GB"}})["champion memory"]
    assert (found.met, found.observed, found.limit, found.unit) == (met, memory, 105_000, "B")


def started(low: float | None, high: float | None) -> Bound:
    return Bound(50.0, 0.95, 20.0, low, high)


@pytest.mark.parametrize(
    ("champion", "now", "met"),
    [
        (started(18.0, 20.0), started(22.0, 40.0), True),  # 10 % of 20 ms more
        (started(18.0, 20.0), started(22.1, 40.0), False),
        (started(18.0, 20.0), started(None, None), None),
        (started(18.0, None), started(10.0, 11.0), None),
        (None, started(10.0, 11.0), None),
        (started(18.0, 20.0), None, None),
    ],
)
def test_a_start_may_take_longer_by_the_tolerance(champion: Bound | None, now: Bound | None, met: Any) -> None:
    sides = replace(CHAMPION, startup=champion), replace(CHAMPION, startup=now, speedup=SAME)
    beside = replace(LEVEL, champion=sides[0], now=sides[1])
    found = verdicts(ASKED, rung(beside), {"startup": {"max": "1s"}})["champion startup"]
    assert (found.met, found.unit) == (met, "ms")
    if met is not None:
        assert found.limit == pytest.approx(22.0)


def test_the_champion_itself_needs_no_measurement() -> None:
    (found,) = ASKED.judge([read({"size": {"max": "1GB"}})], SERVED, rung(Beside(same=True)))
    assert (found.gate, found.met) == ("champion", True)
    assert found.reason == "it is version 3 itself, byte for byte"


@pytest.mark.parametrize(("served", "beside"), [(None, LEVEL), (SERVED, None), (None, None)])
def test_a_rung_that_was_not_held_against_it_is_undecided(served: Served | None, beside: Beside | None) -> None:
    (found,) = ASKED.judge([], served, rung(beside))
    assert (found.gate, found.met) == ("champion", None)
    assert "run again" in found.reason


def test_the_schema_is_that_of_two_spellings() -> None:
    schema = TypeAdapter(Champion).json_schema()
    assert [each.get("type") for each in schema["anyOf"]] == ["string", "object"] or "$ref" in schema["anyOf"][1]
