"""Signals that ask for the end, held off for the moment that a last word takes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals that ask for the end wait until this is over, and then do what they do."""
    if threading.current_thread() is not threading.main_thread():  # which alone may set, and gets, signals
        yield
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: held.append(number)) for number in _ASKING}
    try:
        yield
    finally:
        for asking, handler in before.items():
            signal.signal(asking, handler)
        for number in held[:1]:
            signal.raise_signal(number)
