"""The loads: in which rhythm requests reach a session, and what that took.

Add a load as a class with a `drive`, and to the union at the foot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, field_validator

from compressor.bench.clock import Clock
from compressor.grammar import Keyed
from compressor.records import Feeds, Session, Timing


class Closed(BaseModel, frozen=True, extra="forbid"):
    """Each request is sent when the one before it is answered."""

    concurrency: int = Field(default=1, description="Requests in flight.", json_schema_extra={"const": 1})

    @field_validator("concurrency")
    @classmethod
    def _check_concurrency(cls, value: int) -> int:
        if value != 1:
            raise ValueError(f"expected 1, the only concurrency that can be measured so far, found {value}")
        return value

    def drive(
        self, sessions: Sequence[Session], feeds: Sequence[Feeds], rng: np.random.Generator, clock: Clock
    ) -> tuple[Timing, ...]:
        """Give what each session took for each of `feeds`, in the order of `sessions`.

        All sessions answer a feed before the next feed is sent, in an order that is drawn anew for each feed: the
        i-th latencies of two sessions are a pair that saw the same input and the same moment. `seconds` is the time
        spent in a session's own calls.
        """
        latencies_ns = np.zeros((len(sessions), len(feeds)), np.int64)
        preempted = np.zeros((len(sessions), len(feeds)), np.bool_)
        for column, feed in enumerate(feeds):
            for row in rng.permutation(len(sessions)):
                latencies_ns[row, column], preempted[row, column] = _call(sessions[row], feed, clock)
        return tuple(
            Timing(taken, float(taken.sum()) / 1e9, float(lost.mean()))
            for taken, lost in zip(latencies_ns, preempted, strict=True)
        )


def _call(session: Session, feed: Feeds, clock: Clock) -> tuple[int, bool]:
    switches = clock.preemptions()
    begin_ns = clock.now_ns()
    outputs = session(feed)
    end_ns = clock.now_ns()
    del outputs  # only now: freeing them is not part of the call
    return end_ns - begin_ns, clock.preemptions() != switches


Load = Annotated[Closed, Keyed(Closed)]
