"""What is shown of pruning: how much was asked for and went, and how far the outputs are off on which samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compressor import records as r
from compressor.formats import markdown
from compressor.formats.markdown.markup import text
from compressor.formats.sections import channels

GROUPS = (r.Channels("conv1", 16, 8, layers=("conv1", "conv2"), macs=0.5), r.Channels("fc", 10, stay=("an output",)))
PRUNED = r.Pruned(
    macs=(1000, 800),
    parameters=(200, 150),
    size_bytes=(4000, 3000),
    nodes=(3, 3),
    channels=(26, 18),
    groups=GROUPS,
    repaired=r.Repaired(2, 0.5, 0.04),
    of="latency",
    asked=0.2,
    gone=0.187,
)


def shown(report: r.Report, pruned: r.Pruned) -> str:
    trial = next(trial for trial in report.trials if trial.stages)
    stages = (replace(trial.stages[0], pruned=pruned),)
    section = channels.pruned(replace(report, trials=(replace(trial, stages=stages),)), text)
    return markdown.markdown(section) if section else ""


def test_what_went_is_told_beside_what_was_asked_for(report: r.Report) -> None:
    text = shown(report, PRUNED)
    assert "Asked for was 20% of the latency; 18.7% went." in text
    assert "| MACs | 1,000 | 800 | 20.0% |" in text
    assert "Asked" not in shown(report, replace(PRUNED, asked=None, gone=None))  # a report from before


@pytest.mark.parametrize(("held_out", "on"), [(True, "samples held out"), (False, "the samples it was fitted to")])
@pytest.mark.parametrize(
    ("layers", "said"), [(2, "2 layers were solved"), (1, "1 layer was solved"), (0, "Nothing was")]
)
def test_how_far_outputs_are_off_is_told_with_the_samples(
    report: r.Report, layers: int, said: str, *, held_out: bool, on: str
) -> None:
    text = shown(report, replace(PRUNED, repaired=r.Repaired(layers, 0.5, 0.04, held_out)))
    assert said in text
    assert f"are off by {0.04 if layers else 0.5:.1%} of their variance, on {on}" in text
