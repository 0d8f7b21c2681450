"""At which numbers of calls a measurement is looked at, and how much of the permitted error each look may spend.

Add another plan as a function that gives looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compressor.bench import stats
from compressor.records import Target

ROUNDS = 8
"""Rounds before the first look."""

_FEWEST_CALLS = ROUNDS * 40  # also enough for an upper limit of the p99, which needs 299
_STEP = 10  # numbers of calls are multiples of it
_ENDLESS = 10**9
_ROUNDS_OF_ENDLESS = 24


@dataclass(frozen=True)
class Look:
    """A number of calls, in how many rounds they are made at best, and the share of the error that may be spent."""

    calls: int
    rounds: int
    share: float

    def first_round(self) -> Look:
        """Give the plan of its first round alone."""
        return replace(self, calls=math.ceil(self.calls / self.rounds), rounds=1)


def single(most: int) -> tuple[Look, ...]:
    """Plan one look that may spend all: nothing waits for a decision."""
    return (Look(min(_FEWEST_CALLS, most), ROUNDS, 1.0),)


def endless() -> tuple[Look, ...]:
    """Plan one look that only the budget ends."""
    return (Look(_ENDLESS, _ROUNDS_OF_ENDLESS, 1.0),)


def once(calls: int) -> tuple[Look, ...]:
    """Plan one look after exactly so many calls: what was recorded has a beginning and an end."""
    return (Look(calls, 1, 1.0),)


def fewest(targets: Sequence[Target]) -> int:
    """Give how many calls a first look needs so that clean samples can decide all targets."""
    return max([_FEWEST_CALLS, *map(_clean, targets)])


def doubling(first: int, most: int, *, ratios: bool) -> tuple[Look, ...]:
    """Plan looks at ever twice the calls, from so many to so many.

    Rounds double too where ratios are to be decided, for rounds are their evidence; else each look has 8 more.
    The first look may spend half of the permitted error, each one after it half of what is left, the last all of it.
    """
    before = math.ceil(math.log2(max(1.0, most / first)))  # looks before the last
    calls = [*(first * 2**i for i in range(before)), most]
    shares = [*(0.5 ** (i + 1) for i in range(before)), 0.5**before]
    rounds = [max(ROUNDS, ROUNDS * calls[i] // first) if ratios else ROUNDS * (i + 1) for i in range(before + 1)]
    return tuple(map(Look, calls, rounds, shares))


def stricter(confidence: float, share: float) -> float:
    """Give the confidence of a statement that may be wrong only with a share of the permitted probability."""
    return 1 - (1 - confidence) * share


def _clean(target: Target) -> int:
    exact = stats.clean_samples(target.percentile, stricter(target.confidence, 0.5))
    return math.ceil(exact / _STEP) * _STEP
