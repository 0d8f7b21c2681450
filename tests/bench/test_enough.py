from functools import partial

import pytest

from compressor.bench import looks, stats
from compressor.bench.enough import enough
from compressor.records import Bound


def asked(violations: int, n: int, dispersion: float = 1.0, deff: float = 1.0, first: int = 370) -> int | None:
    bound = Bound(99, 0.95, 40, None, None, 50, violations=violations, dispersion=dispersion)
    return enough(bound, n, deff, partial(looks.last_share, first=first))


def test_clean_samples_need_what_a_single_look_needs() -> None:
    assert asked(0, 100) == 300  # 299 in the only look of a measurement that makes no more


def test_more_looks_need_more_samples() -> None:
    one = enough(Bound(99, 0.95, 40, None, None, 50, violations=4), 800, 1, lambda _: 1.0)
    many = asked(4, 800)
    assert one is not None
    assert many is not None
    assert one < many


def test_bursts_need_more_samples_and_so_do_samples_that_depend_on_each_other() -> None:
    plain, burst, dependent = asked(4, 800), asked(4, 800, dispersion=5), asked(4, 800, deff=3)
    assert plain is not None
    assert burst is not None
    assert dependent is not None
    assert burst > 3 * plain
    assert dependent > 2 * plain


@pytest.mark.parametrize("violations", [1, 3, 6, 12, 20])
def test_numbers_have_two_digits_and_are_more_than_there_are(violations: int) -> None:
    found = asked(violations, 900)
    assert found is not None
    assert found > 900
    assert found == float(f"{found:.1e}")


def test_a_failure_is_proved_nine_times_in_ten() -> None:
    found = asked(6, 400)
    assert found is not None
    most = stats.allowed(found, 0.99, 0.05 * looks.last_share(found, 370))
    assert most is not None
    assert 0.9 <= stats.binomial_cdf(most, found, 0.985) < 0.97


def test_no_number_of_samples_decides_at_the_permitted_share_itself() -> None:
    assert asked(4, 400) is None
