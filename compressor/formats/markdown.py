"""report.md: a report for people, the verdict first, then what a sceptical colleague would ask for.

A section is a function in `_SECTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

import yaml

from compressor.formats.sentence import MET, NOTHING, chosen_trial, number, score_words, sentence, with_interval
from compressor.formats.snippet import snippet
from compressor.records import Applied, Artifact, Latency, Report, Source, Speedup, Trial, Verdict
from compressor.units import human_bytes, human_ms

_SPECIAL = re.compile(r"[\\`*\[\]<>|&~$]|(?<!\w)_|_(?!\w)|^[#+=-]")
_NAMES_SHOWN = 5


def render(report: Report) -> str:
    """Give the report as GitHub-flavoured Markdown, in which no name or reason of the report is read as markup."""
    sections = (section(report) for section in _SECTIONS)
    return "\n\n".join(text for text in sections if text) + "\n"


def _verdict(report: Report) -> str:
    outcome = f"**{report.verdict.capitalize()}:** {sentence(report, _text)}"
    return f"# {_text(report.model.name)}: {report.verdict}\n\n{outcome}"


def _rungs(report: Report) -> str:
    header = ("rung", "size", "p50", "p99", "speed-up", "score", "drop", "verdict")
    rows = [_rung_row(trial, report.chosen) for trial in (report.baseline, *report.trials)]
    foot = (
        "Times are warm; “at most” is the upper 95 % limit. Brackets hold 95 % intervals. A speed-up is of pairs taken "
        "in one process, for which the baseline was measured anew: its own row is of another moment."
    )
    measured = report.baseline.measurement
    where = f" Measured at {_pairs(measured.latency.shape)}, load {_text(measured.latency.load)}." if measured else ""
    return f"## Rungs\n\n{_table(header, rows)}\n\n{foot}{where}"


def _rung_row(trial: Trial, chosen: str | None) -> list[str]:
    name = f"**{_text(trial.rung)}** (chosen)" if trial.rung == chosen else _text(trial.rung)
    measured = trial.measurement
    if measured is None:
        return [name, *[NOTHING] * 6, _outcome(trial)]
    latency, score, speedup = measured.latency, measured.score, measured.speedup
    return [
        name,
        human_bytes(measured.size_bytes),
        _percentile(latency.p50_ms, latency.p50_high_ms, latency),
        _percentile(latency.p99_ms, latency.p99_high_ms, latency),
        _speedup(speedup) if speedup else NOTHING,
        score_words(score) if score else NOTHING,
        with_interval(score.drop, score.drop_low, score.drop_high) if score else NOTHING,
        _outcome(trial),
    ]


def _speedup(speedup: Speedup) -> str:
    against = f", over {human_ms(speedup.baseline_p50_ms)}" if speedup.baseline_p50_ms is not None else ""
    return f"{speedup.ratio:.2f} [{speedup.low:.2f}, {speedup.high:.2f}]{against}"


def _percentile(value_ms: float, high_ms: float | None, latency: Latency) -> str:
    if high_ms is None:
        return f"n = {latency.n}, too few"
    return f"{human_ms(value_ms)} (at most {human_ms(high_ms)})"


def _outcome(trial: Trial) -> str:
    if trial.failure:
        return f"not built ({_text(trial.failure.stage)}): {_text(trial.failure.reason)}"
    for met in (False, None):
        if gates := [_text(verdict.gate) for verdict in trial.verdicts if verdict.met is met]:
            return f"{MET[met]}: {', '.join(gates)}"
    return MET[True] if trial.verdicts else NOTHING


def _others(report: Report) -> str:
    trials = (report.baseline, *report.trials)
    rows = [_other_row(t.rung, other) for t in trials if t.measurement for other in t.measurement.others]
    return f"## Other shapes and loads\n\n{_table(('rung', 'shape', 'load', 'p50', 'p99'), rows)}" if rows else ""


def _other_row(rung: str, latency: Latency) -> list[str]:
    p50 = _percentile(latency.p50_ms, latency.p50_high_ms, latency)
    p99 = _percentile(latency.p99_ms, latency.p99_high_ms, latency)
    return [_text(rung), _pairs(latency.shape), _text(latency.load), p50, p99]


def _gates(report: Report) -> str:
    header = ("rung", "gate", "verdict", "observed", "limit", "reason")
    trials = (report.baseline, *report.trials)
    rows = [_gate_row(trial.rung, verdict) for trial in trials for verdict in trial.verdicts]
    return f"## Gates\n\n{_table(header, rows)}" if rows else ""


def _gate_row(rung: str, verdict: Verdict) -> list[str]:
    unit = f" {verdict.unit}" if verdict.unit else ""
    observed = with_interval(verdict.observed, verdict.low, verdict.high)
    return [
        *map(_text, (rung, verdict.gate, MET[verdict.met])),
        observed + unit if verdict.observed is not None else observed,
        number(verdict.limit) + unit if verdict.limit is not None else NOTHING,
        _text(verdict.reason),
    ]


def _stages(report: Report) -> str:
    lines = [line for trial in report.trials for line in _trial_lines(trial)]
    return "\n".join(["## What was done", *lines]) if lines else ""


def _trial_lines(trial: Trial) -> Iterator[str]:
    if trial.stages:
        yield f"\n### {_text(trial.rung)}\n"
    for stage in trial.stages:
        cost = f"{stage.seconds:.3g} s, at most {human_bytes(stage.peak_memory_bytes)} of memory"
        yield f"- **{_text(stage.stage)}**: {_text(stage.did)} ({cost})"
        yield from (f"  - {detail}" for detail in _details(stage))
    yield from (f"- note: {_text(note)}" for artifact in trial.artifacts for note in artifact.notes)


def _details(stage: Applied) -> Iterator[str]:
    for output, value in stage.sqnr_db.items():
        yield f"{_text(output)}: SQNR {value:.1f} dB"
    if (audit := stage.audit) is not None:
        yield (
            f"in ONNX Runtime: {audit.integer_nodes} nodes in integers, {audit.float_nodes} Conv, Gemm and MatMul in "
            f"float, {audit.qdq_left} QuantizeLinear and DequantizeLinear left"
        )
        yield from _excluded(audit.excluded)


def _excluded(excluded: Mapping[str, str]) -> Iterator[str]:
    for reason in dict.fromkeys(excluded.values()):
        nodes = [_text(node) for node, why in excluded.items() if why == reason]
        more = f" and {len(nodes) - _NAMES_SHOWN} more" if len(nodes) > _NAMES_SHOWN else ""
        yield f"left alone, {_text(reason)}: {', '.join(nodes[:_NAMES_SHOWN])}{more}"


def _warnings(report: Report) -> str:
    return (
        "\n".join(["## Warnings\n", *(f"- {_text(warning)}" for warning in report.warnings)]) if report.warnings else ""
    )


def _data(report: Report) -> str:
    data = report.data
    rows = [
        ("calibration", _source(data.calibration)),
        ("evaluation", _source(data.evaluation)),
        ("preprocessing", _pairs(data.preprocess) if data.preprocess else "none"),
        ("metric", _text(data.metric or "none")),
    ]
    return f"## Data\n\n{_table(('what', 'from'), rows)}"


def _source(source: Source | None) -> str:
    if source is None:
        return "none"
    made_up = ", synthetic" if source.synthetic else ""
    return f"{_text(source.source)} (n = {source.n}{made_up}, sha256 {_text(source.sha256)})"


def _environment(report: Report) -> str:
    found = {
        **asdict(report.environment),
        "started": report.started.isoformat(),
        "seconds": f"{report.duration_s:.1f}",
    }
    rows = [(_text(name.replace("_", " ")), _value(value)) for name, value in found.items()]
    return f"## Environment\n\n{_table(('what', 'found'), rows)}"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return _pairs(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _text(
        ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    )


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{_text(name)} {_value(value)}" for name, value in values.items())


def _loading(report: Report) -> str:
    chosen = chosen_trial(report)
    return "\n\n".join(["## How to load it", *map(_artifact, chosen.artifacts)]) if chosen and chosen.artifacts else ""


def _artifact(artifact: Artifact) -> str:
    files = [(_text(file.path), human_bytes(file.size_bytes), file.sha256) for file in artifact.files]
    return f"{_table(('file', 'size', 'sha256'), files)}\n\n{_fenced(snippet(artifact), 'python')}"


def _recipe(report: Report) -> str:
    text = yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True)
    return (
        f"<details>\n<summary>The recipe, every choice written out</summary>\n\n{_fenced(text, 'yaml')}\n\n</details>"
    )


def _text(value: str) -> str:
    """Escape what Markdown would read as markup, and keep it on one line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(value.split()))


def _table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = list(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _fenced(text: str, language: str) -> str:
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


_SECTIONS = (_verdict, _rungs, _gates, _others, _warnings, _stages, _data, _environment, _loading, _recipe)
