"""Figures as Vega-Lite and as pictures: valid, without anything made of names, legible."""

from __future__ import annotations

import io
import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from typing import Any

import altair as alt
import pytest
from illustrated import EVERY, FULL, INT8, hostile
from PIL import Image

from compressor.formats import figures, page
from compressor.formats.figures import DARK, LIGHT, PAGE, PAPER, Figure
from compressor.records import Report

CODE = {"expr", "filter", "field", "calculate", "as", "test", "labelExpr", "groupby", "param", "signal", "href", "url"}
"""Keys of Vega-Lite whose values are names of columns, expressions, or addresses."""


def _code(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in CODE and isinstance(value, str):
                yield value
            if key not in {"values", "datasets"}:
                yield from _code(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _code(value)


def test_a_full_report_has_every_figure_and_a_bare_one_none() -> None:
    names = [figure.name for figure in figures.figures(FULL)]
    assert names == ["latency", "front", "speed", "size", "integer", "operators", "errors", "channels"]
    assert figures.figures(EVERY["bare"]) == ()


def test_every_chart_is_valid() -> None:
    for figure in figures.figures(FULL):
        alt.Chart.from_dict(json.loads(figure.spec(PAGE)))


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_figure_has_words_and_no_version_that_a_page_might_not_have(name: str) -> None:
    for figure in figures.figures(EVERY[name]):
        assert all("$schema" not in json.loads(figure.spec(look)) for look in (PAGE, PAPER))
        assert figure.title
        assert figure.caption.endswith(".")
        assert figure.alternative.endswith(".")


def test_no_expression_column_or_address_is_made_of_a_name() -> None:
    harmless = {code for figure in figures.figures(FULL) for code in _code(json.loads(figure.spec(PAGE)))}
    harmful = {code for figure in figures.figures(hostile()) for code in _code(json.loads(figure.spec(PAGE)))}
    assert harmful
    assert harmful <= harmless


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_pictures_are_two_pixels_for_each_of_the_drawing_and_hold_no_script(name: str) -> None:
    for figure in figures.figures(EVERY[name]):
        drawn = figures.draw(figure)
        root = ET.fromstring(drawn.svg)  # noqa: S314
        kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not kinds & {"script", "image", "a", "foreignObject", "use"}
        assert not any(key.startswith("on") for element in root.iter() for key in element.attrib)
        with Image.open(io.BytesIO(figures.png(drawn))) as picture:
            picture.load()  # which checks every checksum
            assert picture.size == tuple(round(2 * float(root.get(side, "0"))) for side in ("width", "height"))
            assert len(picture.convert("RGB").getcolors(maxcolors=10**6)) > 20


def test_numbers_that_are_none_leave_a_figure_out_and_break_none() -> None:
    assert INT8.measurement
    assert INT8.measurement.speedup
    odd = replace(
        INT8.measurement,
        latency=replace(INT8.measurement.latency, p50_ms=math.nan, quantiles_ms=(math.nan,) * 111),
        speedup=replace(INT8.measurement.speedup, ratio=math.inf),
    )
    report = replace(FULL, baseline=replace(INT8, rung="baseline", measurement=odd), trials=())
    assert not {"latency", "front", "speed"} & {figure.name for figure in figures.figures(report)}
    audit = INT8.stages[0].audit
    assert audit
    audit = replace(audit, errors={"a": math.nan, "b": -math.inf, "c": 30.0})
    broken = replace(INT8, measurement=odd, stages=(replace(INT8.stages[0], audit=audit),))
    assert "errors" in {figure.name for figure in figures.figures(replace(FULL, trials=(broken,)))}
    for figure in figures.figures(replace(FULL, trials=(broken,))):
        assert "NaN" not in figure.spec(PAGE)


@pytest.mark.parametrize(
    "broken",
    [
        lambda _report: {}["Conv"],
        lambda _report: max([]),
        lambda _report: 1 / 0,
        lambda report: replace(figures.sizes.figure(report), draw=lambda _look: alt.Chart().mark_bar(size=math.nan)),
    ],
    ids=["lookup", "empty", "division", "refused"],
)
def test_a_figure_that_cannot_be_drawn_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[Report], Figure]
) -> None:
    broken.__module__ = "somewhere.sizes"
    monkeypatch.setattr(figures, "_FIGURES", (figures.latency.figure, broken, figures.errors.figure))
    drawn, (refused,) = figures.drawn(FULL)
    assert [one.figure.name for one in drawn] == ["latency", "errors"]
    assert re.match(r"the figure of sizes? cannot be drawn: ", refused)
    assert [one.name for one in figures.figures(FULL) if one.name != "size"] == ["latency", "errors"]
    assert f"<li>{escape(refused)}</li>" in page.render(FULL).replace("&#39;", "&#x27;")


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_text_has_the_contrast_that_wcag_asks_for(colours: dict[str, str]) -> None:
    for ink in ("ink", "soft", "good", "bad", "open", "accent"):
        for ground in ("page", "card", "sunk"):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for series in (role for role in colours if role[0] == "s" and role[1:].isdigit()):
        assert _contrast(colours[series], colours["card"]) >= 3, series


def _contrast(one: str, other: str) -> float:
    """Source: WCAG 2.2, "contrast ratio" and "relative luminance"."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
