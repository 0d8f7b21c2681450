"""Which way of applying a stage is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compressor.engines import Onnxruntime
from compressor.pipeline import search
from compressor.pipeline.reuse import Step
from compressor.pipeline.search import Looked, Search, Way
from compressor.pipeline.work import Made
from compressor.records import Did, Model, Speedup, Tried
from compressor.stages import Quantize

MODEL = Model(Path("m.onnx"), "", 1000, 10, 10, 1, 17, (), ())


def way(ratio: float | None, db: float | None, *, width: float = 0.01, scheme: str = "static") -> Way:
    speedup = (
        Speedup(ratio, ratio * (1 - width), ratio * (1 + width), rounds=9, lowest=ratio, highest=ratio)
        if ratio
        else None
    )
    made = Step({}, Made(MODEL, Did("quantized"), {}), 1.0, 1)
    return Way(Quantize.model_validate({"scheme": scheme}), made, Looked(db, None, speedup))


def said(outcome: search.Outcome) -> str:
    """Give the sentence of a stage that left the model as it was."""
    return search.left(Step({}, Made(MODEL, Did("left as it is"), {}), 1.0, 1), outcome).made.did.what


def test_the_fastest_of_those_exact_enough_is_taken() -> None:
    slow, fast, wrong = way(1.5, 30.0), way(1.9, 28.0), way(2.5, 12.0)
    outcome = search.pick([slow, fast, wrong], timed=True)
    assert outcome.taken is fast
    assert [tried.taken for tried in outcome.tried] == [False, True, False]
    assert "not exact enough: 12.0 dB, where 20.0 dB is the least" in outcome.tried[2].why
    assert outcome.tried[0].why == "slower, or as fast and less exact"
    assert (outcome.tried[1].ratio, outcome.tried[1].sqnr_db, outcome.tried[1].size_bytes) == (1.9, 28.0, 1000)


def test_of_models_that_lose_much_those_near_the_most_exact_are_exact_enough() -> None:
    near, best = way(1.9, 15.5), way(1.5, 18.0)
    assert search.pick([best, near], timed=True).taken is near
    assert search.pick([best, way(1.9, 14.5)], timed=True).taken is best


def test_from_20_db_on_no_way_is_passed_over_for_a_more_exact_one() -> None:
    assert search.pick([way(1.1, 60.0), enough := way(1.2, 20.5)], timed=True).taken is enough


def test_of_two_as_fast_the_more_exact_is_taken() -> None:
    exact, rough = way(1.79, 30.0), way(1.8, 22.0)
    assert search.pick([rough, exact], timed=True).taken is exact
    assert search.pick([rough, way(1.7, 30.0)], timed=True).taken is rough


@pytest.mark.parametrize("ratio", [0.86, 1.0, 1.015])
def test_what_is_not_faster_is_not_taken(ratio: float) -> None:
    outcome = search.pick([way(ratio, 40.0)], timed=True)
    assert outcome.taken is None
    assert outcome.tried[0].why == "not faster than before"
    assert f"is {ratio:.3g}x [" in said(outcome)


@pytest.mark.parametrize(("ratio", "taken"), [(0.86, False), (1.0, True)])
def test_where_size_is_asked_for_what_is_smaller_need_not_be_faster_but_not_slower(ratio: float, taken: bool) -> None:  # noqa: FBT001
    outcome = search.pick([way(ratio, 40.0)], timed=True, small=True)
    assert (outcome.taken is not None) is taken


def test_a_clear_gain_is_believed_on_a_noisy_machine_and_a_small_one_is_not() -> None:
    noisy = way(1.4, 40.0, width=0.4)
    assert search.pick([noisy], timed=True).taken is noisy
    assert search.pick([way(1.03, 40.0, width=0.1)], timed=True).taken is None


def test_a_way_that_gains_nothing_does_not_set_the_bar_for_exactness() -> None:
    fast, exact = way(2.3, 12.0), way(0.9, 36.0)
    outcome = search.pick([fast, exact], timed=True)
    assert outcome.taken is fast
    assert outcome.tried[1].why == "not faster than before"


def test_below_10_db_nothing_is_taken_however_fast_and_alone_it_is() -> None:
    outcome = search.pick([way(3.0, 9.9), way(0.9, 36.0)], timed=True)
    assert outcome.taken is None
    assert said(outcome) == "left float: 1 of 2 ways of quantizing are faster, and none is exact enough"


def test_a_model_that_does_not_agree_with_itself_is_chosen_by_time_alone() -> None:
    slow, fast = way(1.5, None), way(1.9, None)
    assert search.pick([slow, fast], timed=True).taken is fast


def test_for_another_machine_the_first_that_is_exact_enough_is_taken() -> None:
    rough, first, second = way(None, 10.0), way(None, 30.0), way(None, 31.0)
    outcome = search.pick([rough, first, second], timed=False)
    assert outcome.taken is first
    assert "another that is exact enough comes first" in outcome.tried[2].why


def test_ways_that_could_not_be_made_say_why_and_nothing_is_taken() -> None:
    failed = Tried({"scheme": "static"}, taken=False, why="nncf refused the model")
    outcome = search.pick([failed, replace(failed, why="quantized no weight")], timed=True)
    assert outcome.taken is None
    assert said(outcome) == "left float: no way of quantizing works (nncf refused the model; quantized no weight)"


def test_a_choice_depends_on_what_decides_it() -> None:
    engine = Onnxruntime(threads=2)
    at = Search("int8", MODEL, engine, None, Path(), 0, saturates=False, timed=True, small=False)  # type: ignore[arg-type]
    others = [
        replace(at, small=True),
        replace(at, timed=False),
        replace(at, saturates=True),
        replace(at, seed=1),
        replace(at, engine=Onnxruntime(threads=1)),
        replace(at, engine=Onnxruntime(threads=2, spinning=True)),
    ]
    assert len({repr(one.depends_on) for one in (at, *others)}) == 1 + len(others)
    assert replace(at, rung="other", scratch=Path("elsewhere")).depends_on == at.depends_on
