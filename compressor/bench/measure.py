"""The measurement: calls until everything asked is decided or the budget is spent.

How requests are sent is a load's business (`load`), how calls are spread over rounds that of `rounds`, what they prove
that of `summary`; add here only what decides how long a measurement goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from compressor.bench import looks, summary
from compressor.bench.clock import SYSTEM, Clock
from compressor.bench.experiment import Experiment, Measured
from compressor.bench.load import Constant, Load, Poisson, Trace, Window
from compressor.bench.looks import Look
from compressor.bench.pairs import interleaved
from compressor.bench.rounds import Budget, Opener, Rounds, Way, extend, watch
from compressor.bench.summary import Seen
from compressor.records import Feeds, Session, Timing, Work

__all__ = ["Experiment", "Measured", "measure"]

_LEAST_S = 1.0
"""Time in calls before a target is believed, where the budget allows it: foreign work slows calls down for a while, of
which fewer than 400 quick calls see nothing."""
_LEAST_CALLS = 2000  # which are enough in any case
_SPARE = 1.1  # calls may get quicker after the round by which they are planned
_SHARE_OF_PAIRS = 0.5  # of the budget, where the load comes after them


def measure(
    openers: Sequence[Opener], feeds: Sequence[Feeds], experiment: Experiment, clock: Clock = SYSTEM
) -> Work[Measured]:
    """Measure what the last opener opens; a first one beside it opens its baseline, called on the same feeds in turn.

    Where the load's calls can be pairs, these are the measurement. Else the pairs come first and give the speed-up
    alone, then the load drives the candidate.

    Samples are looked at only at numbers of calls that are fixed beforehand, and each look may be wrong with a share of
    1 - confidence that adds up to no more than 1 over all looks. So all limits reported hold at their stated
    confidence although the measurement stops when it likes what it sees; they are wider than those of a single look.

    In a closed loop this is a promise for calls that are slow independently of each other. A known limit: calls that
    are slow in rare bursts can pass unseen. A model whose calls take over 2.7 ms is decided after 370 clean ones, and
    exactly on its limit it then passes 35 % (runs of 3 slow calls) to 68 % (runs of 10) of the time.

    An open loop is looked at once, at the end of one window. There, where requests wait for each other, samples count
    for as many as are independent, and nothing is met while the queue shows no end of growing.

    `cold_ms` and `load_ms` are None: they need a fresh process. Throughput counts the samples of a batch.
    """
    load, rng = experiment.load, np.random.default_rng(experiment.seed)
    budget = Budget.starting(experiment.budget_s, clock)
    pairing, speedup = Way(tuple(openers), interleaved, tuple(feeds), rng), None
    if load.paired:
        seen = yield from _looked(pairing, experiment, budget)
        return summary.summed_up(seen, experiment, summary.speedup(seen))
    if len(openers) > 1:
        part = Budget.starting(experiment.budget_s * _SHARE_OF_PAIRS, clock)
        pairs = replace(experiment, targets=(), rates=(), fill=False)
        speedup = summary.speedup((yield from _looked(pairing, pairs, part)))
    alone = replace(pairing, openers=tuple(openers[-1:]) * load.opened, drive=_driven_by(load))
    if load.open:
        look = _window(load, experiment)
        seen = Seen((yield from watch(look, alone, budget)), look.share, None, _samples(feeds[0]))
    else:
        seen = yield from _looked(alone, replace(experiment, ratios=()), budget)
    return summary.summed_up(seen, experiment, speedup)


def _driven_by(load: Load) -> Callable[..., Work[tuple[Timing, ...]]]:
    """Give a drive of which all sessions together make one timing."""

    def drive(
        sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock
    ) -> Work[tuple[Timing, ...]]:
        timing = yield from load.drive(sessions, feeds, window, clock)
        return (timing,)

    return drive


def _looked(way: Way, experiment: Experiment, budget: Budget) -> Work[Seen]:
    """Add rounds, look by look, until all is decided; the look at which the budget ends may spend all that is left."""
    rounds, first = Rounds(), min(looks.fewest(experiment.targets), experiment.max_samples)
    if experiment.waits:
        rounds = yield from extend(rounds, looks.trial(first, budget.seconds), way, budget)
        first = min(experiment.max_samples, max(first, _least_calls(rounds) if experiment.targets else 0))
    planned = _planned(rounds, first, experiment, budget)
    for number, look in enumerate(planned):
        rounds = yield from extend(rounds, look, way, budget)
        spent = rounds.calls() < look.calls
        share = sum(one.share for one in planned[number:]) if spent else look.share
        seen = Seen(rounds, share, max(first, looks.fewest(experiment.targets)), _samples(way.feeds[0]))
        if spent or (not _is_brief(rounds, experiment) and summary.is_decided(seen, experiment)):
            break
    return seen


def _is_brief(rounds: Rounds, experiment: Experiment) -> bool:
    """Say whether too little was seen for a target: calls got quicker after the round by which they were planned."""
    seconds = sum(window[-1].seconds for window in rounds.windows)
    return bool(experiment.targets) and seconds < _LEAST_S and rounds.calls() < _LEAST_CALLS


def _planned(rounds: Rounds, first: int, experiment: Experiment, budget: Budget) -> tuple[Look, ...]:
    """Plan the looks, by what the calls of the first round took."""
    if not experiment.waits:
        return looks.endless() if experiment.fill else looks.single(experiment.max_samples)
    reach = rounds.calls() + int(budget.left_s() / _turn_s(rounds)) if _turn_s(rounds) else experiment.max_samples
    by_rounds = bool(experiment.ratios or experiment.rates)
    return looks.doubling(first, max(1, reach), experiment.max_samples, by_rounds=by_rounds)


def _least_calls(rounds: Rounds) -> int:
    """Give how many calls are enough to believe a target, by what one took in the first round."""
    wanted_s = _SPARE * _LEAST_S * len(rounds.windows[0])
    return min(_LEAST_CALLS, math.ceil(wanted_s / _turn_s(rounds))) if _turn_s(rounds) else _LEAST_CALLS


def _turn_s(rounds: Rounds) -> float:
    """Give the seconds in which each session was called once, in the first round."""
    return sum(timing.seconds for timing in rounds.windows[0]) / rounds.calls()


def _window(load: Constant | Poisson | Trace, experiment: Experiment) -> Look:
    """Plan the one window of an open loop: all of the budget if something is asked, for stalls may be rare."""
    most = experiment.max_samples
    if isinstance(load, Trace):
        return looks.once(len(load.arrivals_s()))
    if experiment.targets or experiment.fill:
        return looks.remainder(most)
    return looks.window(load.rate, looks.fewest(()), most)


def _samples(feeds: Feeds) -> int:
    """Give the length of the leading axis of the first input; 1 for a scalar."""
    shape = next((value.shape for value in feeds.values()), ())
    return int(shape[0]) if shape else 1
