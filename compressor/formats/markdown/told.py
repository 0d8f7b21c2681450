"""The sections of report.md on what was done, from what data, on which machine, and how to repeat and use it.

A section is a function here that takes the report and gives its text, empty where there is nothing to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

import yaml

from compressor.formats.markdown.markup import fenced, pairs, table, text, value
from compressor.formats.sentence import chosen_trial
from compressor.formats.snippet import snippet
from compressor.records import Applied, Artifact, Report, Source, Trial
from compressor.units import human_bytes

_NAMES_SHOWN = 5
_REASONS_SHOWN = 8


def warnings(report: Report) -> str:
    """List what the reader should know before believing a number."""
    lines = [f"- {text(warning)}" for warning in report.warnings]
    return "\n".join(["## Warnings\n", *lines]) if lines else ""


def stages(report: Report) -> str:
    """Tell what each stage did to each rung."""
    lines = [line for trial in report.trials for line in _trial_lines(trial)]
    return "\n".join(["## What was done", *lines]) if lines else ""


def data(report: Report) -> str:
    """Tell which samples were used, and how they were prepared."""
    found = report.data
    rows = [
        ("calibration", _source(found.calibration)),
        ("evaluation", _source(found.evaluation)),
        ("preprocessing", pairs(found.preprocess) if found.preprocess else "none"),
        ("metric", text(found.metric or "none")),
    ]
    return f"## Data\n\n{table(('what', 'from'), rows)}"


def environment(report: Report) -> str:
    """Tell what the numbers depend on besides the model."""
    found = {
        **asdict(report.environment),
        "started": report.started.isoformat(),
        "seconds": f"{report.duration_s:.1f}",
    }
    rows = [(text(name.replace("_", " ")), value(one)) for name, one in found.items()]
    return f"## Environment\n\n{table(('what', 'found'), rows)}"


def loading(report: Report) -> str:
    """Show how to load what was chosen."""
    chosen = chosen_trial(report)
    return "\n\n".join(["## How to load it", *map(_artifact, chosen.artifacts)]) if chosen and chosen.artifacts else ""


def recipe(report: Report) -> str:
    """Show the resolved recipe, folded."""
    written = yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True)
    return (
        f"<details>\n<summary>The recipe, every choice written out</summary>\n\n{fenced(written, 'yaml')}\n\n</details>"
    )


def _trial_lines(trial: Trial) -> Iterator[str]:
    if trial.stages:
        yield f"\n### {text(trial.rung)}\n"
    for stage in trial.stages:
        cost = f"{stage.seconds:.3g} s, at most {human_bytes(stage.peak_memory_bytes)} of memory"
        made = f"; made by an earlier run on {stage.reused:%Y-%m-%d at %H:%M} UTC" if stage.reused else ""
        yield f"- **{text(stage.stage)}**: {text(stage.did)} ({cost}{made})"
        compiled = any(artifact.is_engine for artifact in trial.artifacts)  # no kernels of ONNX Runtime run there
        yield from (f"  - {detail}" for detail in _details(stage, audited=not compiled))
    notes = dict.fromkeys(note for artifact in trial.artifacts for note in artifact.notes)
    yield from (f"- note: {text(note)}" for note in notes)


def _details(stage: Applied, *, audited: bool) -> Iterator[str]:
    for output, sqnr_db in stage.sqnr_db.items():
        yield f"{text(output)}: SQNR {sqnr_db:.1f} dB"
    if (audit := stage.audit) is not None and audited:
        kernels = ", ".join(f"{n} {text(kernel)}" for kernel, n in audit.integer.items())
        yield (
            f"in ONNX Runtime: {audit.integer_nodes} nodes in integers{f' ({kernels})' if kernels else ''}, "
            f"{audit.float_nodes} Conv, Gemm and MatMul in float, "
            f"{audit.qdq_left} QuantizeLinear and DequantizeLinear left"
        )
        yield from _by_reason("left alone", audit.excluded)
        yield from _by_reason("not fused", audit.blocked)
    yield from (f"note: {text(note)}" for note in stage.notes)


def _by_reason(what: str, reasons: Mapping[str, str]) -> Iterator[str]:
    """Give a line for each reason of those that are commonest, and how many names have others."""
    counts = Counter(reasons.values()).most_common()
    for reason, _ in counts[:_REASONS_SHOWN]:
        names = [text(name) for name, why in reasons.items() if why == reason]
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        yield f"{what}, {text(reason)}: {', '.join(names[:_NAMES_SHOWN])}{more}"
    if others := sum(n for _, n in counts[_REASONS_SHOWN:]):
        yield f"{what}, for other reasons: {others} more"


def _source(source: Source | None) -> str:
    if source is None:
        return "none"
    made_up = ", synthetic" if source.synthetic else ""
    return f"{text(source.source)} (n = {source.n}{made_up}, sha256 {text(source.sha256)})"


def _artifact(artifact: Artifact) -> str:
    files = [(text(file.path), human_bytes(file.size_bytes), text(file.sha256)) for file in artifact.files]
    return f"{table(('file', 'size', 'sha256'), files)}\n\n{fenced(snippet(artifact), 'python')}"
