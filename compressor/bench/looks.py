"""When a measurement is looked at, and how much of the permitted error each look may spend.

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
ENDLESS = 10**9
"""Calls that no budget reaches."""

_FEWEST_CALLS = 370  # clean ones prove a p99 at the first of several looks too, which needs 368
_STEP = 10  # numbers of calls are multiples of it
_ROUNDS_OF_ENDLESS = 24
_WINDOW_S = 10.0
_SETTLING = 0.1
_SHARE_OF_QUEUE = 0.5
"""Of the permitted error, for an open loop: how many of its samples are independent is an estimate, too."""


@dataclass(frozen=True)
class Look:
    """A number of calls, in how many rounds they are made at best, and the share of the error that may be spent.

    `seconds`: the longest that one of its rounds may last. `settling`: see `Window`.
    """

    calls: int
    rounds: int
    share: float
    seconds: float = math.inf
    settling: float = 0.0


def single(most: int) -> tuple[Look, ...]:
    """Plan one look that may spend all: nothing waits for a decision."""
    return (Look(min(_FEWEST_CALLS, most), ROUNDS, 1.0),)


def endless() -> tuple[Look, ...]:
    """Plan one look that only the budget ends."""
    return (Look(ENDLESS, _ROUNDS_OF_ENDLESS, 1.0),)


def once(calls: int) -> Look:
    """Plan one look after exactly so many calls: what was recorded has a beginning and an end."""
    return Look(calls, 1, _SHARE_OF_QUEUE)


def fewest(targets: Sequence[Target]) -> int:
    """Give how many calls a first look needs so that clean samples can decide all targets."""
    return max([_FEWEST_CALLS, *map(_clean, targets)])


def trial(calls: int, budget_s: float) -> Look:
    """Plan the first round of a look at so many calls alone, whose speed says how many looks there can be."""
    return Look(math.ceil(calls / ROUNDS), 1, 1.0, budget_s / ROUNDS)


def doubling(first: int, reach: int, most: int, *, by_rounds: bool) -> tuple[Look, ...]:
    """Plan looks at ever twice the calls, from `first` on, and a last one that the budget ends, or `most` calls.

    `reach`: the calls that the budget is expected to allow, so that no look is planned that it does not. The first look
    may spend half of the permitted error, each one after it half of what is left, the last all of it. Rounds double too
    where they are the evidence; else each look has 8 more.
    """
    before = _before(first, min(reach, most))  # looks before the last
    shares = [*(0.5 ** (i + 1) for i in range(before)), 0.5**before]
    calls = [*(first * 2**i for i in range(before)), most]
    last = ROUNDS * max(first, min(reach, most)) // first
    doubled = [*(ROUNDS * 2**i for i in range(before)), last]
    rounds = doubled if by_rounds else [ROUNDS * (i + 1) for i in range(before + 1)]
    return tuple(map(Look, calls, rounds, shares))


def window(rate: float, calls: int, most: int) -> Look:
    """Plan one window of an open loop, for twice so many calls, and 10 s at least."""
    return replace(remainder(most), seconds=max(_WINDOW_S, 2 * calls / rate))


def remainder(most: int) -> Look:
    """Plan one window of an open loop, for all of the budget.

    What comes in the first tenth of a window does not count, for it meets an empty queue.
    """
    return Look(most, 1, _SHARE_OF_QUEUE, settling=_SETTLING)


def last_share(calls: int, first: int) -> float:
    """Give what the last look of a measurement that makes so many calls may spend, as `doubling` plans it."""
    return 0.5 ** _before(first, calls)


def stricter(confidence: float, share: float) -> float:
    """Give the confidence of a statement that may be wrong only with a share of the permitted probability."""
    return 1 - (1 - confidence) * share


def _before(first: int, reach: int) -> int:
    """Give how many looks come before the last, which has from 1.4 to 2.8 times the calls of the one before it."""
    return max(0, round(math.log2(reach / first)))


def _clean(target: Target) -> int:
    exact = stats.clean_samples(target.percentile, stricter(target.confidence, 0.5))
    return math.ceil(exact / _STEP) * _STEP
