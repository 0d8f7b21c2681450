"""The report that is checked in: what the code would write of it today."""

from __future__ import annotations

from pathlib import Path

from compressor import formats

SAMPLE = Path(__file__).parents[2] / "reports" / "sample"


def test_the_sample_is_what_its_numbers_give() -> None:
    report = formats.read(SAMPLE / "report.json")
    for suffix in formats.FORMATS:
        told = (SAMPLE / f"report.{suffix}").read_text(encoding="utf-8")
        assert told == formats.render(report, suffix, SAMPLE), (
            f"run `compress report reports/sample/report.json --format {suffix} > reports/sample/report.{suffix}`"
        )


def test_the_page_of_the_sample_is_small() -> None:
    page = (SAMPLE / formats.PAGE).read_text(encoding="utf-8")
    assert "<!doctype html>" in page
    assert page == formats.drawing.page.registered(page, formats.read(SAMPLE / "report.json"))
    assert len(page.encode()) < 1_500_000
