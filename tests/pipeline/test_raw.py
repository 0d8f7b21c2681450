"""Raw latencies beside a report, held against limits that nobody had in mind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import found
import numpy as np
import pytest

from compressor.gates import Latency
from compressor.pipeline import raw
from compressor.records import Bound, Report, Trial

N = 2000
BOUND = Bound(99, 0.95, 9.0, 8.5, 9.5, limit_ms=50, violations=0, steady=True)


def report(bound: Bound = BOUND) -> Report:
    def timed(trial: Trial) -> Trial:
        if trial.measurement is None:
            return trial
        latency = replace(trial.measurement.latency, bounds=(bound,), n=N, at="")
        return replace(trial, measurement=replace(trial.measurement, latency=latency, others=()))

    return replace(found.REPORT, baseline=timed(found.REPORT.baseline), trials=tuple(map(timed, found.REPORT.trials)))


def gate(limit: str) -> Latency:
    return Latency.model_validate({"p99": limit})


def written(folder: Path, slow: np.ndarray, rows: int = 2) -> str:
    """Write latencies of 9 ms, those at `slow` of 30 ms; the baseline's row is of 200 ms."""
    name = next(trial.rung for trial in found.REPORT.trials if trial.measurement)
    latencies_ms = np.full((rows, N), 200)
    latencies_ms[-1] = 9
    latencies_ms[-1, slow] = 30
    (folder / "raw").mkdir()
    np.save(folder / "raw" / f"{name}.npy", latencies_ms * 1_000_000)
    return name


def bounds(of: Report, rung: str) -> tuple[Bound, ...]:
    trial = next(trial for trial in of.trials if trial.rung == rung)
    assert trial.measurement
    return trial.measurement.latency.bounds


SPREAD = np.arange(0, N, N // 10)  # 10 slow calls of 2000, one in each tenth
BURST = np.arange(10)  # the same, all at once


@pytest.mark.parametrize(
    ("slow", "rows", "steady"), [(SPREAD, 2, True), (SPREAD, 1, True), (np.array([], int), 2, True)]
)
def test_limits_hold_whatever_they_are_held_against(tmp_path: Path, slow: np.ndarray, rows: int, steady: bool) -> None:  # noqa: FBT001
    rung = written(tmp_path, slow, rows)
    first, more = bounds(raw.against(report(), tmp_path, [gate("20ms")]), rung)
    assert first == BOUND
    assert (more.low_ms, more.high_ms, more.limit_ms, more.steady) == (8.5, 9.5, 20, steady)


def test_a_burst_above_the_new_limit_is_seen(tmp_path: Path) -> None:
    """Half a percent violates, all of it in one of 20 blocks, whose mean is uncertain by more than the other half."""
    rung = written(tmp_path, np.concatenate([BURST, BURST + 10]) % N)
    shares = np.zeros(20)
    shares[0] = 20 / (N / 20)
    reach = 1.729 * shares.std(ddof=1) / np.sqrt(20)  # Student's t with 19 degrees of freedom at 95 %, from a table
    assert reach > 0.01 - 20 / N
    assert bounds(raw.against(report(), tmp_path, [gate("20ms")]), rung)[1].steady is False
    assert bounds(raw.against(report(), tmp_path, [gate("40ms")]), rung)[1].steady is True


@pytest.mark.parametrize(
    ("gate", "limit_ms", "steady"), [({"p95": "20ms"}, 20, True), ({"p50": "5ms", "confidence": "90%"}, 5, False)]
)
def test_a_lower_percentile_is_answered_by_a_higher_one(
    tmp_path: Path,
    gate: dict[str, str],
    limit_ms: float,
    steady: bool,  # noqa: FBT001
) -> None:
    rung = written(tmp_path, SPREAD)
    first, more = bounds(raw.against(report(), tmp_path, [Latency.model_validate(gate)]), rung)
    assert first == BOUND
    assert (more.percentile, more.limit_ms, more.high_ms, more.steady) == (99, limit_ms, 9.5, steady)


def test_nothing_is_added_where_it_is_answered_or_cannot_be(tmp_path: Path) -> None:
    rung = written(tmp_path, SPREAD)
    assert bounds(raw.against(report(), tmp_path, [gate("50ms")]), rung) == (BOUND,)
    for higher in ({"p99.9": "20ms"}, {"p99": "20ms", "confidence": "99%"}):
        assert bounds(raw.against(report(), tmp_path, [Latency.model_validate(higher)]), rung) == (BOUND,)
    assert bounds(raw.against(report(), tmp_path / "elsewhere", [gate("20ms")]), rung) == (BOUND,)


@pytest.mark.parametrize(
    "wrong", [np.zeros(N, int), np.zeros((2, N - 1), int), np.zeros((0, N), int), np.zeros((2, N))]
)
def test_what_are_no_latencies_of_the_report_is_left_alone(tmp_path: Path, wrong: np.ndarray) -> None:
    rung = written(tmp_path, SPREAD)
    np.save(tmp_path / "raw" / f"{rung}.npy", wrong)
    assert bounds(raw.against(report(), tmp_path, [gate("20ms")]), rung) == (BOUND,)
    (tmp_path / "raw" / f"{rung}.npy").write_bytes(b"none")
    assert bounds(raw.against(report(), tmp_path, [gate("20ms")]), rung) == (BOUND,)
