"""Calls of several sessions in turn, so that the i-th calls of all of them saw the same input and the same moment.

How single requests reach sessions is a load's business (`load`); add here only what compares sessions.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from compressor.bench.clock import Clock, stalled_share
from compressor.bench.load import Window
from compressor.records import Feeds, Progress, Session, Timing, Work

_SHOWN_EVERY_NS = 250_000_000


def interleaved(
    sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock
) -> Work[tuple[Timing, ...]]:
    """Give what each session took for each of the feeds, which are cycled, in the order of `sessions`.

    All sessions answer a feed before the next feed is sent, in an order that is drawn anew for each feed. At least one
    feed is answered; another one only if as much time as those before took on average is left. `seconds` is the time
    spent in a session's own calls.
    """
    latencies_ns = tuple(array("q") for _ in sessions)
    preempted, done = [0] * len(sessions), 0
    begin_ns, stalled_us = clock.now_ns(), clock.stalled_us()
    now_ns = shown_ns = begin_ns
    while done < window.calls and (not done or now_ns + (now_ns - begin_ns) // done <= window.deadline_ns):
        for row in window.rng.permutation(len(sessions)):
            taken_ns, lost = _call(sessions[row], feeds[done % len(feeds)], clock)
            latencies_ns[row].append(taken_ns)
            preempted[row] += lost
        done, now_ns = done + 1, clock.now_ns()
        if now_ns - shown_ns > _SHOWN_EVERY_NS:
            shown_ns = now_ns
            yield Progress("measure", done, window.calls)
    yield Progress("measure", done, window.calls)
    stalled = stalled_share(stalled_us, clock.stalled_us(), now_ns - begin_ns)
    return tuple(
        Timing(np.array(taken, np.int64), sum(taken) / 1e9, lost / done, stalled)
        for taken, lost in zip(latencies_ns, preempted, strict=True)
    )


def _call(session: Session, feed: Feeds, clock: Clock) -> tuple[int, bool]:
    switches = clock.preemptions()
    begin_ns = clock.now_ns()
    outputs = session(feed)
    end_ns = clock.now_ns()
    del outputs  # only now: freeing them is not part of the call
    return end_ns - begin_ns, clock.preemptions() != switches
