"""Whether the sessions that are opened want more threads than there are CPUs.

What else runs at the same time is a factor in `oversubscribed`.
"""

from __future__ import annotations

from compressor.bench.load import Load


def oversubscribed(threads: int, load: Load, cpus_usable: int) -> str | None:
    """Warn of more threads than CPUs, those of all sessions that the load opens together; None where they fit.

    `threads`: of one session. Callers that share a session are not counted: they are the load that was asked for.
    """
    wanted, most = threads * load.opened, cpus_usable // load.opened
    if wanted <= cpus_usable:
        return None
    each = f" ({load.opened} sessions of {threads})" if load.opened > 1 else ""
    advice = f"use {most} (--threads, or in the recipe under engine)" if most else "share one session, under load"
    return f"{wanted} threads{each} on {cpus_usable} usable CPUs: latencies will be long and noisy; {advice}"
