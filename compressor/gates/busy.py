"""When a machine was too busy with other work to be trusted, and the words for it.

Another sign of it belongs in `busy` and, with its words, in `blame`.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor.records import Latency, Speedup, Trial

_STALLED = 0.3
"""Share of the time. Own threads wait too: 2 to 14 % on 2 quiet CPUs, 70 to 90 % beside two busy processes."""
_PREEMPTED = 0.1


def busy(moment: Latency | Speedup) -> bool:
    """Say whether some task waited for a CPU too long or, where nobody counts that, too many calls were preempted.

    A preemption by itself is no sign of other work: a pool's thread that wakes up may take the CPU of the thread that
    called it, and in an open loop on a quiet machine does so in nearly every call.
    """
    return moment.preempted > _PREEMPTED if moment.stalled is None else moment.stalled > _STALLED


def blame(moment: Latency | Speedup, *trials: Trial) -> str:
    """Give the end of a reason: how the machine was busy, and what would help `trials`, whose threads are known."""
    threads = "fewer threads or " if any(map(_has_threads, trials)) else ""
    return f"; {' and '.join(_signs(moment))}: use {threads}a quieter machine"


def _signs(moment: Latency | Speedup) -> Iterator[str]:
    if moment.preempted > _PREEMPTED:
        yield f"the process was preempted in {moment.preempted:.0%} of its calls"
    if moment.stalled is not None:
        yield f"some task waited for a CPU {moment.stalled:.0%} of the time"


def _has_threads(trial: Trial) -> bool:
    return any(artifact.options.get("intra_op_num_threads", "1") != "1" for artifact in trial.artifacts)
