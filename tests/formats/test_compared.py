from __future__ import annotations

from dataclasses import replace

import pytest

from compressor import records as r
from compressor.formats import compared as words

LOST = "top1 drops by 0.50 % (-1.00 % to 2.00 %)"


def _after(compared: r.Compared, **changed: object) -> r.Compared:
    measured = replace(compared.after.measurement, **changed)  # type: ignore[arg-type]
    return replace(compared, after=replace(compared.after, measurement=measured))


def test_the_sentence_says_speed_size_quality_and_verdict(compared: r.Compared) -> None:
    assert words.sentence(compared, "faster") == (
        f"B is 2.50 times as fast as A (95 % interval 2.25 to 2.75), is 4.00 times smaller, and {LOST}: not worse."
    )


@pytest.mark.parametrize(
    ("relation", "ratio", "told"),
    [
        ("slower", (0.5, 0.4, 0.625), "B takes 2.00 times as long as A (95 % interval 1.60 to 2.50)"),
        (
            "same",
            (1.0, 0.99, 1.01),
            "B is as fast as A, with no difference beyond 2 % (1.00 times, 95 % interval 0.99 to 1.01)",
        ),
        (
            "undecided",
            (1.03, 0.9, 1.2),
            "B seems 1.03 times as fast as A (95 % interval 0.90 to 1.20, which decides nothing)",
        ),
    ],
)
def test_each_relation_has_its_words(
    compared: r.Compared, relation: r.Relation, ratio: tuple[float, float, float], told: str
) -> None:
    found = _after(compared, speedup=r.Speedup(*ratio))
    assert words.sentence(found, relation) == f"{told}, is 4.00 times smaller, and {LOST}: not worse."


def test_without_a_score_or_a_speed_up_the_sentence_says_so(compared: r.Compared) -> None:
    found = _after(compared, speedup=None, score=None, size_bytes=25_600_000)
    assert words.sentence(replace(found, verdict="undecided", verdicts=()), None) == (
        "B was not timed beside A, is of the same size, and what it loses is unknown for want of evaluation data: "
        "undecided."
    )


def test_outputs_that_nobody_scored_but_that_are_equal_to_rounding_are_called_so(compared: r.Compared) -> None:
    met = r.Verdict("accuracy", met=True, observed=None, limit=0.01, low=None, high=None, reason="equal to rounding")
    found = replace(_after(compared, score=None), verdicts=(met,))
    assert ", and its outputs are those of A up to rounding: not worse." in words.sentence(found, "faster")


def test_agreement_and_growing_errors_have_their_own_words(compared: r.Compared) -> None:
    score = r.Score("agreement", 0.98, 40, None, None, drop=0.02, reference=True)
    assert "and agreement with A drops by 2.00 %: " in words.sentence(_after(compared, score=score), "faster")
    score = r.Score("mae", 1.5, 40, None, None, drop=0.5, relative=True)
    assert "and mae grows by 50.00 % of itself: " in words.sentence(_after(compared, score=score), "faster")


def test_what_is_held_against_the_other_model_is_an_agreement_only_where_it_is_one(compared: r.Compared) -> None:
    score = r.Score("cosine", 0.98, 40, None, None, drop=0.02, reference=True)
    assert "and cosine compared with A drops by 2.00 %: " in words.sentence(_after(compared, score=score), "faster")


def test_every_unmet_gate_is_named_and_then_every_open_one(compared: r.Compared) -> None:
    verdicts = (
        r.Verdict("speed", None, 1.0, 1.0, None, None, "too noisy"),
        r.Verdict("accuracy", False, 0.2, 0.01, None, None, "top1 drops by 20%"),  # noqa: FBT003
    )
    told = words.sentence(replace(compared, verdict="worse", verdicts=verdicts), "faster")
    assert told.endswith(": worse. accuracy not met: top1 drops by 20%. speed undecided: too noisy.")


def test_the_models_stand_side_by_side(compared: r.Compared) -> None:
    assert words.sides(compared) == [
        ["model", "net.onnx", "int8"],
        ["size", "25.6 MB", "6.4 MB"],
        ["p50", "1 ms", "1 ms"],
        ["p99 at most", "82 ms", "33.2 ms"],
        ["throughput", "120/s [110/s, 130/s]", "120/s [110/s, 130/s]"],
        ["cold start", "load 30.5 ms, first call 9 ms", "load 30.5 ms, first call 9 ms"],
        ["peak memory", "5 MB", "4 MB"],
        ["threads", "2 on 2 usable CPUs", "2 on 2 usable CPUs"],
        ["score", "top1 0.75 [0.6, 0.9] (n = 40)", "top1 0.745 [0.59, 0.89] (n = 40, 0.744 with exact integers)"],
    ]


def test_the_differences_stand_below(compared: r.Compared) -> None:
    assert words.differences(compared, "faster") == [
        ("speed", "faster: 2.50 times as fast (95 % interval 2.25 to 2.75), 8 rounds (2.12 to 2.88)"),
        ("size", "4.00 times smaller"),
        ("top1", "drops by 0.50 % (-1.00 % to 2.00 %)"),
        ("worst class", "class 7, 75.00 % → 50.00 % of 12 samples, drops by 25.00 % (12.50 % to 37.50 %)"),
        (
            "output logits",
            (
                "SQNR 31.2 dB; relative error 3.00 % on average, 5.00 % at the 95th percentile; "
                "largest difference 0.5 (n = 40)"
            ),
        ),
        ("machine", "some task waited for a CPU 25 % of the time"),
    ]


def test_what_was_not_measured_is_not_shown(compared: r.Compared) -> None:
    bare = _after(compared, score=None, errors={}, speedup=None)
    assert words.differences(bare, None) == [("size", "4.00 times smaller")]
    sides = words.sides(replace(bare, before=replace(compared.before, measurement=bare.after.measurement)))
    assert "score" not in [row[0] for row in sides]


def test_every_gate_stands_with_its_reason(compared: r.Compared) -> None:
    assert words.gates(compared) == [
        ["latency p99", "met", "33.25 is within 50"],
        ["accuracy", "met", "0.005 is within 0.01"],
    ]
