"""What report.md says of the champion and of the report that was proved again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from found import INT8
from test_markdown import HARMFUL, _section, _tables

from compressor import formats
from compressor import records as r
from compressor.formats import markdown
from compressor.formats.markdown.markup import text as escape
from compressor.formats.sections import proved

assert INT8.measurement
THEN = replace(INT8.measurement, memory_bytes=5_000_000)
NOW = replace(INT8.measurement, speedup=r.Speedup(1.5, 1.25, 1.75), memory_bytes=4_000_000)
SCORES = r.Score("top1", 0.75, 40, 0.6, 0.9), r.Score("top1", 0.74, 40, 0.6, 0.9, 0.01, -0.02, 0.04)
BESIDE = r.Beside(THEN, NOW, *SCORES)
SERVED = r.Served(
    "models:/net@champion",
    "net",
    "7",
    r.Size(12_800_000, 1, 1, 1),
    r.Artifact("onnxruntime", "cpu", (), 0.0, {"a": "2"}),
)
VERIFIED = r.Verified("/a/report.json", "2026-03-04 ab12", "A Laptop", "pass", "int8", "net", "3")


def held(report: r.Report, beside: r.Beside | None, served: r.Served | None = SERVED) -> r.Report:
    return replace(report, trials=(replace(INT8, beside=beside), *report.trials[1:]), champion=served)


def _verified(report: r.Report) -> str:
    section = proved.verified(report, escape)
    assert section
    return markdown.markdown(section)


def test_a_rung_stands_beside_the_champion(report: r.Report) -> None:
    text = _section(markdown.render(held(report, BESIDE)), "Beside the champion")
    assert "net version 7 (models:/net@champion), 12.8 MB" in text
    (table,) = _tables(text)
    assert table[0] == ["rung", "speed", "p50 and p99 at most of both", "memory of both", "score of both", "drop"]
    (row,) = table[1:]
    assert row[0] == "int8"
    assert row[1].startswith("1.50 times as fast (95 % interval 1.25 to 1.75)")
    assert row[2].count("→") == 1
    assert row[3] == "5 MB → 4 MB"
    assert row[4] == "0.75 → 0.74"
    assert "1.00 %" in row[5]


def test_the_champion_itself_has_no_numbers(report: r.Report) -> None:
    (table,) = _tables(_section(markdown.render(held(report, r.Beside(same=True))), "Beside the champion"))
    assert table[1] == ["int8", "it is the champion itself, byte for byte", "-", "-", "-", "-"]


def test_what_was_not_scored_says_why(report: r.Report) -> None:
    bare = r.Beside(unscored="no evaluation data: give --evaluation")
    (table,) = _tables(_section(markdown.render(held(report, bare)), "Beside the champion"))
    assert table[1] == ["int8", "-", "-", "-", "no evaluation data: give --evaluation", "-"]


@pytest.mark.parametrize(("beside", "served"), [(None, SERVED), (BESIDE, None), (None, None)])
def test_without_a_champion_there_is_no_section(
    report: r.Report, beside: r.Beside | None, served: r.Served | None
) -> None:
    assert proved.champion(held(report, beside, served), escape) is None
    assert "Beside the champion" not in markdown.render(held(report, beside, served))


def test_a_baseline_that_was_held_against_it_stands_there_too(report: r.Report) -> None:
    both = replace(held(report, BESIDE), baseline=replace(report.baseline, beside=r.Beside(same=True)))
    (table,) = _tables(_section(markdown.render(both), "Beside the champion"))
    assert [row[0] for row in table[1:]] == ["baseline", "int8"]


def test_a_proof_names_the_report_and_the_machine(report: r.Report) -> None:
    assert proved.verified(report, escape) is None
    told = _verified(replace(report, verifies=VERIFIED))
    assert "/a/report.json" in told
    assert "version 3 of net" in told
    assert "measured again on a CPU: its rung int8 was pass on A Laptop" in told
    assert told in markdown.render(replace(report, verifies=VERIFIED))
    bare = _verified(replace(report, verifies=replace(VERIFIED, model=None, version=None)))
    assert "version" not in bare


def test_names_are_text(report: r.Report) -> None:
    served = replace(SERVED, source=HARMFUL, name=HARMFUL, version=HARMFUL)
    verified = replace(VERIFIED, source=HARMFUL, cpu=HARMFUL, rung=HARMFUL, identity=HARMFUL, model=HARMFUL)
    told = replace(held(report, replace(BESIDE, unscored=HARMFUL), served), verifies=verified)
    text = markdown.render(told)
    assert "<script>" not in text
    assert HARMFUL not in text
    (table,) = _tables(_section(text, "Beside the champion"))
    assert len(table[1]) == 6


def test_all_of_it_is_written_and_read_again(report: r.Report, tmp_path: Path) -> None:
    told = replace(held(report, BESIDE), verifies=VERIFIED)
    (tmp_path / "report.json").write_text(formats.render(told, "json"))
    assert formats.read(tmp_path / "report.json") == told
