"""A machine on which time passes only in calls, and sessions that take what they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from compressor.bench.clock import Clock
from compressor.records import Feeds, Outputs, Progress, Session, Work

T = TypeVar("T")
MS = 1_000_000


@dataclass
class Host:
    """What its clock reads, and in which order sessions were opened and closed."""

    now_ns: int = 0
    switches: int = 0
    stalled_us: int | None = None
    opening_ms: float = 0
    log: list[str] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_ns, lambda: self.switches, lambda: self.stalled_us, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def opener(self, took_ms: Callable[[int], float], name: str = "a") -> Callable[[], Session]:
        """Give what opens sessions whose calls are counted on, from one session to the next."""
        seen: list[int] = []

        def open_session() -> Session:
            self.now_ns += int(self.opening_ms * MS)
            self.log.append(f"open {name}")
            return Fake(self, took_ms, name, seen)

        return open_session


@dataclass
class Fake:
    """A session whose i-th call takes `took_ms(i)`; `seen` holds the first value of each feed."""

    host: Host
    took_ms: Callable[[int], float]
    name: str = "a"
    seen: list[int] = field(default_factory=list)

    def __call__(self, feeds: Feeds) -> Outputs:
        self.host.now_ns += int(self.took_ms(len(self.seen)) * MS)
        self.seen.append(int(np.ravel(feeds["x"])[0]))
        self.host.log.append(f"call {self.name}")
        return {}

    def close(self) -> None:
        self.host.log.append(f"close {self.name}")


def finish(work: Work[T]) -> tuple[T, list[Progress]]:
    """Run work to its end, and give what it showed."""
    seen = []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as stop:
            return stop.value, seen
