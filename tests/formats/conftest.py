"""A report that holds something everywhere, so that every line of every format is reached."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from compressor import records as r


def _latency(p99_ms: float, p99_high_ms: float | None) -> r.Latency:
    return r.Latency(
        **{f"p{q}{end}_ms": 1.0 for q in (50, 90, 95) for end in ("", "_low", "_high")},
        p99_ms=p99_ms,
        p99_low_ms=None,
        p99_high_ms=p99_high_ms,
        mean_ms=1.25,
        n=100,
        cold_ms=9.0,
        load_ms=30.5,
        shape={"input": "1x3x8x8"},
        load="closed",
        preempted=0.01,
        bounds=(r.Bound(99.0, 0.95, p99_ms, None, p99_high_ms, limit_ms=50.0, violations=1, steady=True),),
    )


def _artifact(name: str) -> r.Artifact:
    file = r.File(f"{name}/net.onnx", f"sha-of-{name}", 6_400_000)
    options = {"intra_op_num_threads": "2", "session.intra_op.allow_spinning": "0", "providers": "CPUExecutionProvider"}
    return r.Artifact("onnxruntime", "cpu", (file,), 0.5, options, ("a note",))


BASELINE = r.Trial(
    "baseline",
    artifacts=(_artifact("baseline"),),
    measurement=r.Measurement(25_600_000, _latency(80.25, 82.0), 100.0, 5_000_000, r.Score("top1", 0.75, 40, 0.6, 0.9)),
    model=r.Size(25_600_000, 6_000_000, 5000, 40),
    verdicts=(
        r.Verdict(
            "latency p99", met=False, observed=80.25, limit=50.0, low=79.0, high=82.0, reason="80.25 > 50", unit="ms"
        ),
    ),
)
INT8 = r.Trial(
    "int8",
    stages=(
        r.Applied(
            "quantize",
            {"scheme": "auto"},
            "quantized 20 of 22 layers",
            12.5,
            512_000_000,
            {"logits": 31.25, "ids": 160.0},
            r.Audit(20, 2, 3, {"first": "its input has 3 channels", "last": "its input has 3 channels"}),
            changed=True,
            uncalibrated=True,
        ),
    ),
    artifacts=(_artifact("int8"),),
    measurement=r.Measurement(
        6_400_000,
        _latency(31.5, 33.25),
        210.0,
        4_000_000,
        r.Score("top1", 0.745, 40, 0.59, 0.89, drop=0.005, drop_low=-0.01, drop_high=0.02, emulated=0.744),
        r.Speedup(2.5, 2.25, 2.75, 78.5),
        0.12,
        (_latency(60.0, None),),
    ),
    model=r.Size(6_400_000, 6_000_000, 5000, 60),
    verdicts=(
        r.Verdict(
            "latency p99",
            met=True,
            observed=31.5,
            limit=50.0,
            low=31.0,
            high=33.25,
            reason="33.25 is within 50",
            unit="ms",
        ),
        r.Verdict("accuracy", met=True, observed=0.005, limit=0.01, low=None, high=None, reason="0.005 is within 0.01"),
    ),
)
BROKEN = r.Trial("int8-fused", failure=r.Failure("fuse", "the simplifier refused it"))


@pytest.fixture
def report() -> r.Report:
    return r.Report(
        schema_version=1,
        verdict="pass",
        chosen="int8",
        warnings=("the machine was busy",),
        model=r.Original("net", "sha-of-net", 25_600_000, 6_000_000, 5000, 40, 17),
        data=r.Data(
            r.Source("calibration.npz", "sha-of-calibration", 200, synthetic=False),
            r.Source("evaluation.npz", "sha-of-evaluation", 40, synthetic=True),
            {"layout": "nhwc", "mean": [127, 127, 127]},
            "top1",
        ),
        baseline=BASELINE,
        trials=(INT8, BROKEN),
        environment=r.Environment(
            "x86_64",
            "a CPU",
            ("avx2",),
            2,
            2,
            spinning=False,
            load=0.5,
            versions={"onnxruntime": "1.2.3"},
            saturates=True,
        ),
        recipe={"version": 1, "rungs": [{"name": "int8", "stages": ["quantize"]}]},
        registry=r.Registration("sqlite:////data/mlflow.db", "run", "net", "3", "champion"),
        raw={"int8": "raw/int8.npy"},
        started=datetime(2026, 3, 4, 5, 6, 7, 890, tzinfo=UTC),
        duration_s=61.5,
    )
