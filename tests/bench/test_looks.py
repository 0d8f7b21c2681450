import pytest

from compressor.bench import looks
from compressor.records import Target


def test_each_look_has_twice_the_calls_and_rounds_of_the_one_before() -> None:
    planned = looks.doubling(320, 5000, ratios=True)
    assert [look.calls for look in planned] == [320, 640, 1280, 2560, 5000]
    assert [look.rounds for look in planned] == [8, 16, 32, 64, 125]
    assert [look.rounds for look in looks.doubling(320, 5000, ratios=False)] == [8, 16, 24, 32, 40]


@pytest.mark.parametrize("most", [100, 320, 370, 371, 1000, 5000, 100_000])
def test_all_looks_together_spend_the_permitted_error_and_no_more(most: int) -> None:
    planned = looks.doubling(370, most, ratios=False)
    assert sum(look.share for look in planned) == pytest.approx(1)
    assert planned[-1].calls == most


def test_the_first_look_is_where_clean_samples_decide_every_target() -> None:
    p99, p999 = Target(99, 0.95, 50), Target(99.9, 0.95, 50)
    assert looks.fewest([p99]) == 370  # log(0.025) / log(0.99) = 367.04
    assert looks.fewest([p99, p999]) == 3690  # log(0.025) / log(0.999) = 3687.03


def test_without_a_target_a_first_look_supports_a_p99() -> None:
    assert looks.fewest([]) == 320


def test_a_first_round_is_its_share_of_the_look() -> None:
    assert looks.Look(370, 8, 0.5).first_round() == looks.Look(47, 1, 0.5)


def test_one_look_spends_all_and_supports_a_p99() -> None:
    (only,) = looks.single(5000)
    assert (only.calls, only.rounds, only.share) == (320, 8, 1)
    assert looks.single(50)[0].calls == 50


def test_a_stricter_confidence_leaves_a_share_of_the_error() -> None:
    assert looks.stricter(0.95, 0.5) == pytest.approx(0.975)
    assert looks.stricter(0.95, 1) == pytest.approx(0.95)
