"""The gates: what a candidate's measurement must show before it is chosen, and what all of them ask to be measured.

Add a gate as a class with a `judge` in the module of its kind, and to the union `Gate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from compressor import records
from compressor.gates.accuracy import Accuracy
from compressor.gates.at import At, named
from compressor.gates.budgets import Cost, Macs, Memory, Nodes, Parameters, Size, Startup
from compressor.gates.champion import NAME as CHAMPION
from compressor.gates.champion import Champion
from compressor.gates.latency import PERCENTILES, Latency
from compressor.gates.speed import (
    RATIOS_OF_COMPARISON,
    REGRESSION,
    Speedup,
    Throughput,
    not_slower,
    relation,
)
from compressor.gates.unasked import NORMALISE, regression, uncalibrated, unchanged
from compressor.grammar import Keyed
from compressor.records import Target, Trial, Verdict

__all__ = [
    "CHAMPION",
    "NORMALISE",
    "PERCENTILES",
    "RATIOS_OF_COMPARISON",
    "REGRESSION",
    "Accuracy",
    "At",
    "Champion",
    "Cost",
    "Gate",
    "Latency",
    "Macs",
    "Memory",
    "Nodes",
    "Parameters",
    "Size",
    "Speedup",
    "Startup",
    "Throughput",
    "cost",
    "elsewhere",
    "implicit",
    "not_slower",
    "points",
    "proxied",
    "rates",
    "ratios",
    "regression",
    "relation",
    "starts",
    "targets",
    "unfit",
    "unmeasured",
]

_TIMED = frozenset({"ms", "/s", "x", "USD/1M"})  # units of verdicts that rest on how fast this machine is
_STARTS = 5  # the largest of five is an upper limit of the median at 1 - 2^-5, which is over 95 %

Gate = Annotated[
    Latency | Throughput | Speedup | Accuracy | Size | Memory | Startup | Macs | Parameters | Nodes | Cost,
    Keyed(Latency, Throughput, Speedup, Accuracy, Size, Memory, Startup, Macs, Parameters, Nodes, Cost),
]


def targets(gates: Sequence[Gate], at: str) -> tuple[Target, ...]:
    """Give the percentiles to decide at a point, by its name; an empty one is the recipe's own."""
    wanted = (gate for gate in gates if isinstance(gate, Latency))
    return tuple(gate.target() for gate in wanted if named(gate.at) == at)


def ratios(gates: Sequence[Gate]) -> tuple[float, ...]:
    """Give the speed-ups to decide."""
    return tuple(gate.min for gate in gates if isinstance(gate, Speedup))


def rates(gates: Sequence[Gate], at: str) -> tuple[float, ...]:
    """Give the samples a second to decide at a point, by its name; a price is one of the recipe's own."""
    asked = tuple(gate.min for gate in gates if isinstance(gate, Throughput) and named(gate.at) == at)
    return asked if at else (*asked, *(gate.least_per_s() for gate in gates if isinstance(gate, Cost)))


def points(gates: Sequence[Gate]) -> tuple[At, ...]:
    """Give the points to measure beside the recipe's own, each once."""
    stated = (gate.at for gate in gates if isinstance(gate, Latency | Throughput))
    return tuple(dict.fromkeys(at for at in stated if at))


def starts(gates: Sequence[Gate]) -> int:
    """Give how many fresh processes to start."""
    return _STARTS if any(isinstance(gate, Startup) for gate in gates) else 1


def cost(gates: Sequence[Gate], latency: records.Latency) -> float | None:
    """Give what a million inferences cost under a load, in US dollars.

    None where no gate names a price, and in an open loop, which shows what came and not what could be answered.
    """
    if latency.offered_per_s is not None:
        return None
    return next((gate.per_million(latency.throughput_per_s) for gate in gates if isinstance(gate, Cost)), None)


def unfit(gates: Sequence[Gate], metric: str) -> str | None:
    """Say why no gate's drop can be judged by a built-in metric, before anything is measured; None where all can."""
    return next(filter(None, (gate.unfit(metric) for gate in gates if isinstance(gate, Accuracy))), None)


def elsewhere(verdicts: Sequence[Verdict], target: str) -> tuple[Verdict, ...]:
    """Give the verdicts as far as they hold on another machine: what rests on time is undecided there."""
    return tuple(_elsewhere(verdict, target) if verdict.unit in _TIMED else verdict for verdict in verdicts)


def unmeasured(verdicts: Sequence[Verdict], why: str) -> tuple[Verdict, ...]:
    """Give the verdicts of what was built and not run: all that needs a run is undecided, and `why` says the reason."""
    return tuple(
        replace(verdict, reason=why) if verdict.unit in {*_TIMED, "B"} and verdict.observed is None else verdict
        for verdict in verdicts
    )


def proxied(verdicts: Sequence[Verdict], what: str) -> tuple[Verdict, ...]:
    """Give the verdicts of what another thing was measured for, which each of them says."""
    runs = {"memory", f"{CHAMPION} memory", *(verdict.gate for verdict in verdicts if verdict.unit in _TIMED)}
    return tuple(
        replace(verdict, reason=f"{verdict.reason} ({what})") if verdict.gate in runs else verdict
        for verdict in verdicts
    )


def implicit(trial: Trial, rivals: Sequence[Trial]) -> tuple[Verdict, ...]:
    """Give the verdicts that no recipe asks for and every rung must not have.

    A rung is slower than one of its `rivals`, it changed nothing, or it was calibrated on made-up inputs: the first of
    these that is proved, or else the first that is open.
    """
    verdicts = (*(regression(rival, trial) for rival in rivals), unchanged(trial), uncalibrated(trial))
    return tuple(sorted((verdict for verdict in verdicts if verdict), key=lambda verdict: verdict.met is None))[:1]


def _elsewhere(verdict: Verdict, target: str) -> Verdict:
    return replace(verdict, met=None, reason=f"{verdict.reason}; but that is here, and the target is {target}")
