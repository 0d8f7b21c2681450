import math

import numpy as np
import pytest
from host import Host, finish

from compressor.bench import ratio
from compressor.bench.noise import noise
from compressor.errors import InputError
from compressor.records import Feeds, Noise

FEEDS: list[Feeds] = [{"x": np.full((1, 3), i)} for i in range(3)]


def noted(spread: float, seconds: float, median_ms: float = 5) -> tuple[Noise, Host]:
    host, rng = Host(), np.random.default_rng(0)
    openers = [host.opener(lambda _: rng.lognormal(math.log(median_ms), spread), name) for name in "ab"]
    return finish(noise(openers, FEEDS, seconds, 0, host.clock))[0], host


def test_a_model_is_compared_with_itself_for_as_long_as_asked() -> None:
    found, host = noted(0.05, 20)
    assert found.seconds == pytest.approx(20, abs=0.1)
    assert host.now_ns <= 20e9
    assert found.speedup.rounds == 24
    assert found.speedup.low < 1 < found.speedup.high
    assert found.p50_ms == pytest.approx(5, rel=0.02)


def test_a_noisier_machine_detects_less() -> None:
    quiet, loud = noted(0.02, 20)[0], noted(0.4, 20)[0]
    assert 0.02 < quiet.detectable < 0.025  # little more than the minimum effect
    assert quiet.detectable > ratio.detectable(quiet.speedup, 1)  # of several looks, the last may spend but a part
    assert loud.detectable > 2 * quiet.detectable


def test_more_time_detects_more() -> None:
    assert noted(0.3, 60)[0].detectable < noted(0.3, 8)[0].detectable


def test_a_time_too_short_for_three_rounds_is_refused() -> None:
    with pytest.raises(InputError, match="1 s are too short"):
        noted(0.05, 1, median_ms=900)
