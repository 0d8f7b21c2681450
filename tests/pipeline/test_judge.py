"""How trials are judged: by the recipe's gates, by those that nobody asks for, and then beside the champion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from found import INT8

from compressor import recipe, schemes
from compressor.pipeline.judge import Judge, previous
from compressor.records import Artifact, Beside, File, Score, Served, Size, Speedup, Trial

GATES = "gates: [{accuracy: {max_drop: 1%}}, {speedup: {min: 1.2x}}, {size: {max: 1kB}}]\n"
AGAINST = f"{GATES}baseline: models:/net@champion\n"
HERE = schemes.settled("auto", ("avx2",), saturates=True)
FAST, SLOW = Speedup(2.0, 1.9, 2.1), Speedup(0.5, 0.4, 0.6)
BEFORE = Score("top1", 0.8, 400, 0.75, 0.85)
SCORE = Score("top1", 0.795, 400, 0.74, 0.84, drop=0.005, drop_low=-0.005, drop_high=0.015)
assert INT8.measurement
CHAMPION = replace(INT8.measurement, size_bytes=900, score=None, speedup=None)
SERVED = Served("models:/net/3", "net", "3", Size(900, 1, 1, 1), Artifact("onnxruntime", "cpu", (), 0.0, {}))


def judge(text: str = GATES, scheme: Any = HERE) -> Judge:
    return Judge.of(recipe.parse(text, "r"), scheme)


def rung(speedup: Speedup | None = FAST, name: str = "int8", **fields: Any) -> Trial:
    return Trial(name, measurement=replace(CHAMPION, score=SCORE, speedup=speedup), **fields)


def base() -> Trial:
    return Trial("baseline", measurement=replace(CHAMPION, score=BEFORE))


def met(judged: Trial) -> dict[str, bool | None]:
    return {verdict.gate: verdict.met for verdict in judged.verdicts}


def test_every_gate_is_asked_in_its_order() -> None:
    found = judge().judged(rung(), base(), (base(),))
    assert list(met(found).items()) == [("accuracy", True), ("speedup", True), ("size", True)]
    assert replace(found, verdicts=()) == rung()


def test_a_rung_that_is_slower_than_a_rival_has_a_verdict_that_nobody_asked_for() -> None:
    found = judge().judged(rung(SLOW), base(), (base(),))
    assert met(found) == {"accuracy": True, "speedup": False, "size": True, "speed": False}


def test_of_another_machine_times_decide_nothing_and_scores_do() -> None:
    there = schemes.by_name("arm-dotprod")
    assert there is not None
    found = judge(scheme=there).judged(rung(SLOW), base(), (base(),))
    assert met(found) == {"accuracy": True, "speedup": None, "size": True}
    assert "the target is arm-dotprod" in found.verdicts[1].reason


def test_what_was_not_run_is_undecided_and_says_how_it_would_be() -> None:
    artifact = Artifact("tensorrt", "a10g", (File("a.engine", "x", 9),), 0.0, {})
    bare = Trial("int8", artifacts=(artifact,), score=SCORE)
    found = judge().judged(bare, base(), ())
    speedup = found.verdicts[1]
    assert (speedup.met, "`compress verify`" in speedup.reason) == (None, True)
    assert met(found)["accuracy"] is True


def test_times_of_a_stand_in_say_so_and_are_held_against_nobody() -> None:
    measured = replace(CHAMPION, score=SCORE, speedup=SLOW, proxy="the graph on the CPU, not a10g")
    proxied = Trial("int8", measurement=measured)
    found = judge().judged(proxied, base(), (base(),))
    assert "speed" not in met(found)
    assert found.verdicts[1].reason.endswith("(the graph on the CPU, not a10g)")


LEVEL = Beside(CHAMPION, replace(CHAMPION, speedup=FAST), BEFORE, SCORE)
WORSE = replace(LEVEL, now=replace(CHAMPION, speedup=SLOW))


def contested(text: str, beside: Beside | None, speedup: Speedup = FAST) -> Trial:
    asked = judge(text)
    return asked.contested(asked.judged(rung(speedup, beside=beside), base(), (base(),)), SERVED)


def test_beside_the_champion_only_what_meets_every_other_gate_is_judged() -> None:
    fine = contested(AGAINST, LEVEL)
    assert list(met(fine))[3:] == ["champion speed", "champion accuracy", "champion size"]
    assert all(met(fine).values())
    assert met(contested(AGAINST, WORSE))["champion speed"] is False
    assert not any("champion" in gate for gate in met(contested(AGAINST, LEVEL, SLOW)))


def test_beside_the_champion_times_decide_nothing_for_another_machine() -> None:
    there = schemes.by_name("arm-dotprod")
    assert there is not None
    asked = judge("gates: [{accuracy: {max_drop: 1%}}, {size: {max: 1kB}}]\nbaseline: models:/net@champion\n", there)
    for beside in (LEVEL, WORSE):
        found = asked.contested(asked.judged(rung(beside=beside), base(), ()), SERVED)
        assert (met(found)["champion speed"], met(found)["champion accuracy"]) == (None, True)
        assert "the target is arm-dotprod" in found.verdicts[2].reason


def test_beside_the_champion_times_of_a_stand_in_say_so() -> None:
    measured = replace(CHAMPION, score=SCORE, speedup=FAST, proxy="the graph on the CPU, not a10g")
    asked = judge(AGAINST)
    proxied = asked.contested(asked.judged(Trial("int8", measurement=measured, beside=LEVEL), base(), ()), SERVED)
    told = {verdict.gate: verdict.reason for verdict in proxied.verdicts}
    assert told["champion speed"].endswith("(the graph on the CPU, not a10g)")
    assert "a10g" not in told["champion accuracy"]


def test_where_no_champion_is_asked_for_none_is_judged() -> None:
    assert not any("champion" in gate for gate in met(contested(GATES, WORSE)))


def test_a_rung_that_nobody_held_against_the_champion_is_open() -> None:
    assert met(contested(AGAINST, None))["champion"] is None


def test_a_rung_that_is_worse_than_the_champion_is_no_slow_rung() -> None:
    fast = contested(AGAINST, WORSE)
    assert previous([base(), fast]) == fast
    slow = judge().judged(rung(SLOW, name="slow"), base(), (base(),))
    assert previous([base(), slow]) == base()
    assert previous([base(), fast, slow]) == fast


@pytest.mark.parametrize(("engine", "compiled"), [("auto", False), ("{tensorrt: {devices: [a10g]}}", True)])
def test_what_is_compiled_is_judged_where_it_is_built(engine: str, compiled: bool) -> None:  # noqa: FBT001
    assert judge(f"{GATES}engine: {engine}\n").compiled is compiled
