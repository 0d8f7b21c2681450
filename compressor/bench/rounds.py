"""Rounds: all sessions are opened anew, warmed up, driven and closed, so that no one layout of memory decides.

How much of a budget goes into opening, and how calls are spread over rounds, is decided here; how long a measurement
goes on, in `measure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from compressor.bench.clock import Clock
from compressor.bench.load import Window
from compressor.bench.looks import Look
from compressor.records import Feeds, Progress, Session, Timing, Work, relayed

Opener = Callable[[], Session]
Drive = Callable[[Sequence[Session], Sequence[Feeds], Window, Clock], Work[tuple[Timing, ...]]]

_FEWEST_ROUNDS = 3  # below, there is no interval over rounds
_FEWEST_TURNS = 3  # a round of fewer is not worth its opening
_OPENING_SHARE = 0.2  # of the budget, for opening and warming up
_FIRST_WARM_UP_S = 0.3
_WARM_UP_S = 0.03
_WARM_UP_TURNS = 2
_WARM_UP_SHARE = 0.05  # of the budget, after which a single turn has to do


@dataclass(frozen=True)
class Way:
    """Which sessions a round opens, and what drives them."""

    openers: tuple[Opener, ...]
    drive: Drive
    feeds: tuple[Feeds, ...]
    rng: np.random.Generator


@dataclass(frozen=True)
class Budget:
    """The time that rounds may take."""

    seconds: float
    deadline_ns: int
    clock: Clock

    @classmethod
    def starting(cls, seconds: float, clock: Clock) -> Budget:
        """Give a budget that runs from now."""
        return cls(seconds, clock.now_ns() + int(seconds * 1e9), clock)

    def left_s(self) -> float:
        """Give what is left of it; negative when it was overrun."""
        return (self.deadline_ns - self.clock.now_ns()) / 1e9


@dataclass(frozen=True)
class Rounds:
    """What was seen so far: a window for each round, in it a timing for each session or one for all of them.

    `opening_s`: what it took to open all sessions the last time; `turn_s`: to call each of them once; `overhead_s`:
    what opening and warming up took in all rounds together.
    """

    windows: tuple[tuple[Timing, ...], ...] = ()
    opening_s: float = 0.0
    turn_s: float = 0.0
    overhead_s: float = 0.0

    def calls(self) -> int:
        """Give the calls of one session in all rounds."""
        return sum(len(window[0].latencies_ns) for window in self.windows)


def extend(rounds: Rounds, look: Look, way: Way, budget: Budget) -> Work[Rounds]:
    """Add rounds until a look's calls are made, or another round does not fit the budget.

    The first round is always made, with at least one call.
    """
    while rounds.calls() < look.calls and _fits(rounds, budget):
        rounds = yield from relayed(_round(rounds, look, way, budget), partial(_of_look, rounds.calls(), look.calls))
    return rounds


def watch(look: Look, way: Way, budget: Budget) -> Work[Rounds]:
    """Make one window, as long as the look says or the budget allows: a queue must not be emptied in between."""
    return (yield from _round(Rounds(), look, way, budget))


def _of_look(before: int, total: int, progress: Progress) -> Progress:
    """Count the calls of earlier rounds too."""
    return replace(progress, done=before + progress.done, total=total) if progress.total else progress


def _fits(rounds: Rounds, budget: Budget) -> bool:
    return not rounds.windows or budget.left_s() > _overhead_s(rounds, budget) + rounds.turn_s


def _overhead_s(rounds: Rounds, budget: Budget) -> float:
    """Expect what another round takes before its first call that counts."""
    turns = 1 if rounds.turn_s > budget.seconds * _WARM_UP_SHARE else _WARM_UP_TURNS
    return rounds.opening_s + max(_WARM_UP_S, turns * rounds.turn_s)


def _round(rounds: Rounds, look: Look, way: Way, budget: Budget) -> Work[Rounds]:
    left_s, start = budget.left_s(), rounds.calls() % len(way.feeds)
    feeds = way.feeds[start:] + way.feeds[:start]
    with _opened(way) as sessions:
        opening_s = left_s - budget.left_s()
        turn_s = yield from _warm_up(sessions, feeds, budget, first=not rounds.windows)
        overhead_s = rounds.overhead_s + left_s - budget.left_s()
        ready = replace(rounds, opening_s=opening_s, turn_s=turn_s, overhead_s=overhead_s)
        driven = way.drive(sessions, feeds, _window(ready, look, way.rng, budget), budget.clock)
        window = yield from driven
    return replace(ready, windows=(*rounds.windows, window))


@contextmanager
def _opened(way: Way) -> Generator[tuple[Session, ...]]:
    """Open all sessions in an order that is drawn anew."""
    with ExitStack() as stack:
        order = way.rng.permutation(len(way.openers))
        opened = {place: stack.enter_context(closing(way.openers[place]())) for place in order}
        sessions = tuple(opened[place] for place in range(len(order)))
        opened.clear()
        yield sessions


def _warm_up(sessions: Sequence[Session], feeds: Sequence[Feeds], budget: Budget, *, first: bool) -> Work[float]:
    """Call until the sessions are warm; gives the seconds in which each of them is called once."""
    yield Progress("warm up")
    begin_s, turns, first_s, seconds = budget.left_s(), 0, 0.0, 0.0
    wanted_s, most_s = _FIRST_WARM_UP_S if first else _WARM_UP_S, min(begin_s, budget.seconds * _WARM_UP_SHARE)
    while not turns or (seconds < most_s and (turns < _WARM_UP_TURNS or seconds < wanted_s)):
        for session in sessions:
            session(feeds[turns % len(feeds)])
        turns, seconds = turns + 1, begin_s - budget.left_s()
        first_s = first_s or seconds
    return (seconds - first_s) / (turns - 1) if turns > 1 else seconds  # the first call is slower


def _window(rounds: Rounds, look: Look, rng: np.random.Generator, budget: Budget) -> Window:
    """Plan what is due in the round that was just opened: an equal share of the calls and of the time that are left."""
    to_go = _to_go(rounds, look, budget)
    seconds = min(look.seconds, (budget.left_s() - (to_go - 1) * _overhead_s(rounds, budget)) / to_go)
    deadline_ns = budget.clock.now_ns() + int(max(seconds, rounds.turn_s) * 1e9)
    return Window(math.ceil((look.calls - rounds.calls()) / to_go), deadline_ns, rng, look.settling)


def _to_go(rounds: Rounds, look: Look, budget: Budget) -> int:
    """Give how many rounds, with the one that is open, are wanted and can be afforded."""
    overhead_s, turn_s, left_s = _overhead_s(rounds, budget), rounds.turn_s, budget.left_s()
    by_opening = 1 + (budget.seconds * _OPENING_SHARE - rounds.overhead_s) / overhead_s
    by_time = (left_s + overhead_s) / (overhead_s + _FEWEST_TURNS * turn_s)
    needed = _FEWEST_ROUNDS - len(rounds.windows)
    possible = needed * (overhead_s + turn_s) <= left_s + overhead_s
    affordable = max(needed if possible else 1, int(min(by_opening, by_time)))
    return max(1, min(look.rounds - len(rounds.windows), affordable))
