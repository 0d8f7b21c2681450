"""Records that hold something everywhere, so that every line that shows them is reached."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

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
        throughput_per_s=120.0,
        throughput_low_per_s=110.0,
        throughput_high_per_s=130.0,
        stalled=0.25,
        rounds=(50, 50),
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
_STATIC = {"scheme": "static", "backend": "onnxruntime", "operators": "core"}
TRIED = (
    r.Tried(_STATIC, True, "the fastest", 6_400_000, 31.25, 33.5, 1.93, 1.9, 1.96),  # noqa: FBT003
    r.Tried({"scheme": "dynamic"}, False, "not faster than before", 6_500_000, 35.0, None, 0.9, 0.875, 0.925),  # noqa: FBT003
    r.Tried({"scheme": "static", "backend": "nncf"}, taken=False, why="nncf refused the model (KeyError: type)"),
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
            r.Audit(
                20,
                2,
                3,
                {"first": "its input has 3 channels", "last": "its input has 3 channels"},
                {"QLinearAdd": 4, "QLinearConv": 16},
                {
                    "act": "HardSwish has no integer kernel",
                    "pooled": "its reader last (Gemm) was left float (too wide)",
                },
                (r.OperatorTime("Conv", 18, 3.0, 1.5), r.OperatorTime("QuantizeLinear", 0, 0.0, 0.25)),
            ),
            changed=True,
            uncalibrated=True,
            tried=TRIED,
            notes=("3 samples are all zero",),
        ),
    ),
    artifacts=(_artifact("int8"),),
    measurement=r.Measurement(
        6_400_000,
        _latency(31.5, 33.25),
        210.0,
        4_000_000,
        r.Score(
            "top1",
            0.745,
            40,
            0.59,
            0.89,
            drop=0.005,
            drop_low=-0.01,
            drop_high=0.02,
            emulated=0.744,
            worst=r.ClassScore(7, 12, 0.75, 0.5, 0.25, 0.125, 0.375),
        ),
        r.Speedup(2.5, 2.25, 2.75, 78.5, 8, 2.125, 2.875, 0.01, 0.25),
        0.12,
        (replace(_latency(60.0, None), at="batch 8", overloaded=True, offered_per_s=300.0),),
        {"logits": r.OutputError(40, 31.25, 0.03, 0.05, 0.5)},
        r.Bound(50.0, 0.95, 120.0, 100.0, 150.0),
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


ENVIRONMENT = r.Environment(
    "x86_64",
    "a CPU",
    ("avx2",),
    2,
    2,
    spinning=False,
    load=0.5,
    versions={"onnxruntime": "1.2.3"},
    saturates=True,
)
STARTED = datetime(2026, 3, 4, 5, 6, 7, 890, tzinfo=UTC)


def _side(source: str, trial: r.Trial, size_bytes: int) -> r.Side:
    assert trial.measurement
    original = r.Original("net", f"sha-of-{source}", size_bytes, 6_000_000, 5000, 40, 17)
    return r.Side(source, original, {"intra_op_num_threads": "2"}, trial.measurement)


REPORT = r.Report(
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
    environment=ENVIRONMENT,
    recipe={"version": 1, "rungs": [{"name": "int8", "stages": ["quantize"]}]},
    registry=r.Registration("sqlite:////data/mlflow.db", "run", "net", "3", "champion"),
    raw={"int8": "raw/int8.npy"},
    started=STARTED,
    duration_s=61.5,
)
BENCHED = r.Benched(1, "pass", ("made-up inputs",), _side("net.onnx", INT8, 6_400_000), (), ENVIRONMENT, STARTED, 9.5)
COMPARED = r.Compared(
    schema_version=1,
    verdict="not worse",
    warnings=(),
    before=_side("net.onnx", BASELINE, 25_600_000),
    after=_side("int8", INT8, 6_400_000),
    verdicts=INT8.verdicts,
    data=REPORT.data,
    environment=ENVIRONMENT,
    started=STARTED,
    duration_s=30.0,
)
