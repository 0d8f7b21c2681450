from __future__ import annotations

import pytest

from compressor import formats
from compressor.errors import InputError
from compressor.records import Report


@pytest.mark.parametrize("suffix", sorted(formats.FORMATS))
def test_every_format_ends_with_a_new_line_and_names_the_model_and_the_verdict(report: Report, suffix: str) -> None:
    text = formats.render(report, suffix)
    assert text.endswith("\n")
    assert "net" in text
    assert "pass" in text


def test_the_plan_s_formats_are_there() -> None:
    assert {"json", "md", "xml"} <= formats.FORMATS.keys()


def test_an_unknown_suffix_is_refused_with_those_that_exist(report: Report) -> None:
    with pytest.raises(InputError, match=r"json, md, xml, html, benchmark, bencher, found 'pdf'"):
        formats.render(report, "pdf")
