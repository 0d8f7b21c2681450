"""Reports that have something to draw everywhere, or nothing anywhere, or only harmful text."""

from __future__ import annotations

from dataclasses import replace

import found
import numpy as np

from compressor import records as r

HARMFUL = (
    "</script><script>document.title='pwned'</script>",
    "\" onmouseover='alert(1)' <img src=x onerror=alert(2)> & {{ 7 * 7 }} {% raw %}",
    "\u202eevil\u2066 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "a.b[0]['c'] datum.i < 0 ? 1 : window.open('//x.y')",
    "nul\x00 line\nbreak\u2028\u2029 " + "x" * 200,
)
"""Markup, attributes and templates, text that turns the eye, expressions, and what no text should hold."""
LATENCIES_MS = {
    "baseline": np.random.default_rng(0).lognormal(1.0, 0.25, 1500),
    "int8": np.random.default_rng(1).lognormal(0.2, 0.2, 1400),
    "int8-fused": np.random.default_rng(2).lognormal(0.1, 0.3, 300),
}


def latency(name: str, limit_ms: float | None = 8.0, **changed: object) -> r.Latency:
    """Give what was measured of a rung, its distribution with it."""
    taken = LATENCIES_MS[name]
    p50, p90, p95, p99 = np.percentile(taken, [50, 90, 95, 99], method="inverted_cdf").tolist()
    levels = r.quantile_levels(len(taken))
    made = replace(
        found.BASELINE.measurement.latency,  # type: ignore[union-attr]
        **{f"p{q}_ms": value for q, value in ((50, p50), (90, p90), (95, p95), (99, p99))},
        p50_low_ms=p50 * 0.98,
        p50_high_ms=p50 * 1.02,
        p99_low_ms=p99 * 0.9,
        p99_high_ms=p99 * 1.2,
        n=len(taken),
        bounds=() if limit_ms is None else (r.Bound(99.0, 0.95, p99, p99 * 0.9, p99 * 1.2, limit_ms),),
        quantiles_ms=tuple(np.percentile(taken, levels, method="inverted_cdf").tolist()),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


AUDIT = replace(
    found.INT8.stages[0].audit,  # type: ignore[type-var]
    operators=tuple(r.OperatorTime(f"Op{i}", i, 2.0 / (i + 1), 1.0 / (i + 2)) for i in range(14)),
    errors={f"layer{i}": 30.0 - i % 7 for i in range(40)},
)
GROUPS = (
    r.Channels("conv1", 16, 8, layers=("conv1", "conv2"), macs=0.5),
    r.Channels("conv2", 32, 32, macs=0.25),
    r.Channels("fc", 10, stay=("an output",)),
)
PRUNED = r.Applied(
    "prune",
    {"ratio": "20%"},
    "took away a fifth",
    3.0,
    1_000_000,
    {"logits": 30.0},
    r.Audit(float_nodes=3),
    pruned=r.Pruned((1000, 800), (200, 150), (4000, 3000), (3, 3), (26, 18), GROUPS, asked=0.2, gone=0.187),
)


def _trial(trial: r.Trial, name: str, **changed: object) -> r.Trial:
    measured = replace(trial.measurement, latency=latency(name), **changed)  # type: ignore[type-var, arg-type]
    return replace(trial, rung=name, measurement=measured)


INT8 = replace(_trial(found.INT8, "int8"), stages=(replace(found.INT8.stages[0], audit=AUDIT),))
FUSED = replace(
    _trial(found.INT8, "int8-fused", others=(latency("int8", at="batch 8"),)),
    stages=(PRUNED, replace(found.INT8.stages[0], audit=replace(AUDIT, integer_nodes=18, float_nodes=4))),
    verdicts=(replace(found.INT8.verdicts[0], met=None, reason="too few samples"),),
)
FULL = replace(found.REPORT, baseline=_trial(found.BASELINE, "baseline"), trials=(INT8, FUSED, found.BROKEN))
FAILED = replace(
    FULL,
    verdict="fail",
    chosen=None,
    trials=tuple(replace(t, verdicts=(replace(found.BASELINE.verdicts[0], reason="over"),)) for t in FULL.trials[:2]),
)
UNFINISHED = replace(FULL, verdict="inconclusive", chosen=None, trials=(), unfinished="stopped by SIGINT")
VERIFIED = replace(
    UNFINISHED,
    unfinished=None,
    verifies=r.Verified("/a/report.json", "2026-03-04 ab12", "A Laptop", "pass", "baseline", None, None),
)
_ENGINE = r.Artifact("tensorrt", "a10g+l4", (r.File("int8/net.engine", "sha", 5_000_000),), 12.0, {"computes": "int8"})
ENGINES = replace(
    FULL,
    verdict="inconclusive",
    chosen=None,
    trials=(replace(INT8, measurement=None, artifacts=(_ENGINE,), score=r.Score("top1", 0.74, 40, 0.6, 0.9)),),
)
BARE = replace(
    found.REPORT,
    verdict="inconclusive",
    chosen=None,
    warnings=(),
    baseline=r.Trial("baseline", failure=r.Failure("build", "it crashed")),
    trials=(),
    registry=None,
)


def hostile() -> r.Report:
    """Give a report in which every name and reason that comes from elsewhere is harmful."""
    markup, attributes, turned, expression, broken = HARMFUL
    audit = replace(
        AUDIT,
        operators=tuple(r.OperatorTime(name, 1, 2.0, 1.0) for name in HARMFUL),
        errors=dict.fromkeys(HARMFUL, 20.0),
        excluded=dict.fromkeys(HARMFUL, markup),
        integer=dict.fromkeys(HARMFUL, 2),
    )
    groups = tuple(r.Channels(name, 8, 4, layers=HARMFUL) for name in HARMFUL)
    assert PRUNED.pruned
    stage = replace(
        PRUNED, stage=turned, did=broken, notes=HARMFUL, audit=audit, pruned=replace(PRUNED.pruned, groups=groups)
    )
    measured = INT8.measurement
    assert measured
    assert measured.score
    score = replace(measured.score, metric=attributes)
    other = latency("int8", at=expression, load=attributes, shape={markup: turned})
    trials = tuple(
        replace(
            INT8,
            rung=name,
            stages=(stage,),
            measurement=replace(measured, score=score, others=(other,), errors=dict.fromkeys(HARMFUL, _FAR)),
            verdicts=tuple(replace(INT8.verdicts[0], gate=gate, reason=gate) for gate in HARMFUL),
        )
        for name in HARMFUL
    )
    return replace(
        FULL,
        chosen=markup,
        warnings=HARMFUL,
        model=replace(FULL.model, name="".join(HARMFUL)),
        trials=trials,
        environment=replace(FULL.environment, cpu=attributes, versions=dict.fromkeys(HARMFUL, broken)),
        recipe={markup: [attributes, turned, {expression: broken.replace("\x00", "")}]},
        registry=r.Registration(markup, attributes, turned, expression, broken),
    )


_FAR = r.OutputError(40, 31.25, 0.03, 0.05, 0.5)
EVERY = {
    "full": FULL,
    "failed": FAILED,
    "unfinished": UNFINISHED,
    "verified": VERIFIED,
    "engines": ENGINES,
    "bare": BARE,
    "plain": found.REPORT,
    "hostile": hostile(),
}
