"""The gates: what a candidate's measurement must show before it is chosen, and what all of them ask to be measured.

Add a gate as a class with a `judge` in the module of its kind, and to the union `Gate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from compressor.gates.accuracy import Accuracy
from compressor.gates.at import At
from compressor.gates.budgets import Cost, Macs, Memory, Nodes, Parameters, Size, Startup
from compressor.gates.latency import PERCENTILES, Latency
from compressor.gates.speed import (
    MINIMUM_EFFECT,
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
    "MINIMUM_EFFECT",
    "NORMALISE",
    "PERCENTILES",
    "RATIOS_OF_COMPARISON",
    "REGRESSION",
    "Accuracy",
    "At",
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
    "implicit",
    "not_slower",
    "points",
    "ratios",
    "regression",
    "relation",
    "starts",
    "targets",
]

_STARTS = 5  # the largest of five is an upper limit of the median at 1 - 2^-5, which is over 95 %

Gate = Annotated[
    Latency | Throughput | Speedup | Accuracy | Size | Memory | Startup | Macs | Parameters | Nodes | Cost,
    Keyed(Latency, Throughput, Speedup, Accuracy, Size, Memory, Startup, Macs, Parameters, Nodes, Cost),
]


def targets(gates: Sequence[Gate], at: str) -> tuple[Target, ...]:
    """Give the percentiles to decide at a point, by its name; an empty one is the recipe's own."""
    wanted = (gate for gate in gates if isinstance(gate, Latency))
    return tuple(gate.target() for gate in wanted if (gate.at.name() if gate.at else "") == at)


def ratios(gates: Sequence[Gate]) -> tuple[float, ...]:
    """Give the speed-ups to decide."""
    return tuple(gate.min for gate in gates if isinstance(gate, Speedup))


def points(gates: Sequence[Gate]) -> tuple[At, ...]:
    """Give the points to measure beside the recipe's own, each once."""
    stated = (gate.at for gate in gates if isinstance(gate, Latency | Throughput))
    return tuple(dict.fromkeys(at for at in stated if at))


def starts(gates: Sequence[Gate]) -> int:
    """Give how many fresh processes to start."""
    return _STARTS if any(isinstance(gate, Startup) for gate in gates) else 1


def cost(gates: Sequence[Gate], throughput_per_s: float) -> float | None:
    """Give what a million inferences cost, in US dollars; None where no gate names a price."""
    return next((gate.per_million(throughput_per_s) for gate in gates if isinstance(gate, Cost)), None)


def implicit(trial: Trial, rivals: Sequence[Trial]) -> tuple[Verdict, ...]:
    """Give the verdicts that no recipe asks for and every rung must not have.

    A rung is slower than one of its `rivals`, it changed nothing, or it was calibrated on made-up inputs: the first of
    these that is proved, or else the first that is open.
    """
    verdicts = (*(regression(rival, trial) for rival in rivals), unchanged(trial), uncalibrated(trial))
    return tuple(sorted((verdict for verdict in verdicts if verdict), key=lambda verdict: verdict.met is None))[:1]
