"""The sections on what was done, from what data, on which machine, and how to repeat and use it.

A section is a function here that takes the report and how names are escaped; None where there is nothing to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

import yaml

from compressor.formats.sections.blocks import (
    Block,
    Code,
    Folded,
    Item,
    Items,
    Section,
    Strong,
    Table,
    Title,
    pairs,
    value,
)
from compressor.formats.sentence import chosen_trial
from compressor.formats.snippet import snippet
from compressor.formats.words import Escape
from compressor.records import Applied, Artifact, Report, Source, Trial
from compressor.units import human_bytes

_NAMES_SHOWN = 5
_REASONS_SHOWN = 8


def warnings(report: Report, text: Escape) -> Section | None:
    """List what the reader should know before believing a number."""
    return Section("Warnings", (Items.of(map(text, report.warnings)),)) if report.warnings else None


def stages(report: Report, text: Escape) -> Section | None:
    """Tell what each stage did to each rung."""
    blocks = [block for trial in report.trials for block in _trial_blocks(trial, text)]
    return Section("What was done", tuple(blocks)) if blocks else None


def data(report: Report, text: Escape) -> Section:
    """Tell which samples were used, and how they were prepared."""
    found = report.data
    rows = [
        ("calibration", _source(found.calibration, text)),
        ("evaluation", _source(found.evaluation, text)),
        ("preprocessing", pairs(found.preprocess, text) if found.preprocess else "none"),
        ("metric", text(found.metric or "none")),
    ]
    return Section("Data", (Table.of(("what", "from"), rows),))


def environment(report: Report, text: Escape) -> Section:
    """Tell what the numbers depend on besides the model."""
    found = {
        **asdict(report.environment),
        "started": report.started.isoformat(),
        "seconds": f"{report.duration_s:.1f}",
    }
    rows = [(text(name.replace("_", " ")), value(one, text)) for name, one in found.items()]
    return Section("Environment", (Table.of(("what", "found"), rows),))


def loading(report: Report, text: Escape) -> Section | None:
    """Show how to load what was chosen."""
    chosen = chosen_trial(report)
    if chosen is None or not chosen.artifacts:
        return None
    return Section("How to load it", tuple(block for one in chosen.artifacts for block in _artifact(one, text)))


def recipe(report: Report, text: Escape) -> Section:  # noqa: ARG001 - as every section
    """Show the resolved recipe, folded."""
    written = yaml.safe_dump(dict(report.recipe), sort_keys=False, allow_unicode=True)
    return Section("", (Folded("The recipe, every choice written out", Code(written, "yaml")),))


def _trial_blocks(trial: Trial, text: Escape) -> Iterator[Block]:
    notes = dict.fromkeys(note for artifact in trial.artifacts for note in artifact.notes)
    compiled = any(artifact.is_engine for artifact in trial.artifacts)  # no kernels of ONNX Runtime run there
    items = [_stage(stage, text, audited=not compiled) for stage in trial.stages]
    items += [Item(f"note: {text(note)}") for note in notes]
    if trial.stages:
        yield Title(text(trial.rung))
    if items:
        yield Items(tuple(items))


def _stage(stage: Applied, text: Escape, *, audited: bool) -> Item:
    cost = f"{stage.seconds:.3g} s, at most {human_bytes(stage.peak_memory_bytes)} of memory"
    made = f"; made by an earlier run on {stage.reused:%Y-%m-%d at %H:%M} UTC" if stage.reused else ""
    told = Strong(text(stage.stage), f": {text(stage.did)} ({cost}{made})")
    return Item(told, tuple(_details(stage, text, audited=audited)))


def _details(stage: Applied, text: Escape, *, audited: bool) -> Iterator[str]:
    for output, sqnr_db in stage.sqnr_db.items():
        yield f"{text(output)}: SQNR {sqnr_db:.1f} dB"
    if (audit := stage.audit) is not None and audited:
        kernels = ", ".join(f"{n} {text(kernel)}" for kernel, n in audit.integer.items())
        yield (
            f"in ONNX Runtime: {audit.integer_nodes} nodes in integers{f' ({kernels})' if kernels else ''}, "
            f"{audit.float_nodes} Conv, Gemm and MatMul in float, "
            f"{audit.qdq_left} QuantizeLinear and DequantizeLinear left"
        )
        yield from _by_reason("left alone", audit.excluded, text)
        yield from _by_reason("not fused", audit.blocked, text)
    yield from (f"note: {text(note)}" for note in stage.notes)


def _by_reason(what: str, reasons: Mapping[str, str], text: Escape) -> Iterator[str]:
    """Give a line for each reason of those that are commonest, and how many names have others."""
    counts = Counter(reasons.values()).most_common()
    for reason, _ in counts[:_REASONS_SHOWN]:
        names = [text(name) for name, why in reasons.items() if why == reason]
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        yield f"{what}, {text(reason)}: {', '.join(names[:_NAMES_SHOWN])}{more}"
    if others := sum(n for _, n in counts[_REASONS_SHOWN:]):
        yield f"{what}, for other reasons: {others} more"


def _source(source: Source | None, text: Escape) -> str:
    if source is None:
        return "none"
    made_up = ", synthetic" if source.synthetic else ""
    return f"{text(source.source)} (n = {source.n}{made_up}, sha256 {text(source.sha256)})"


def _artifact(artifact: Artifact, text: Escape) -> Iterator[Block]:
    files = [(text(file.path), human_bytes(file.size_bytes), text(file.sha256)) for file in artifact.files]
    yield Table.of(("file", "size", "sha256"), files)
    yield Code(snippet(artifact), "python")
