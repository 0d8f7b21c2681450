"""report.html in a real browser: silent, alone, drawn, at both widths, light and dark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from illustrated import EVERY

from compressor.formats import figures

BOXES = "[...document.querySelectorAll('figure .chart svg')].map(s => s.getBoundingClientRect())"
SIZES = f"{BOXES}.map(box => [box.width, box.height])"
PICK = "s.value = '1'; s.dispatchEvent(new Event('change'));"
ENTER = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    program = browser.found()
    if program is None:
        pytest.skip("no Chromium on the path; name one in COMPRESSOR_CHROMIUM")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        browser.browser(program, Path(folder)) as it,
    ):
        yield it


@pytest.fixture(scope="module")
def files(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name}.html" for name in EVERY}
    for name, path in paths.items():
        path.write_text(pages[name], encoding="utf-8")
    return paths


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_page_is_silent_loads_nothing_and_draws_every_figure(
    chromium: browser.Browser, files: dict[str, Path], name: str, width: int
) -> None:
    opened = chromium.page()
    opened.show(files[name], width)
    drawn = opened.value(SIZES)
    assert len(drawn) == len(figures.figures(EVERY[name]))
    assert all(100 < w <= width and h > 60 for w, h in drawn)
    light = opened.value("getComputedStyle(document.body).backgroundColor")
    ink = opened.value(_INK)
    opened.look(width, dark=True)
    assert opened.value("getComputedStyle(document.body).backgroundColor") != light
    assert not drawn or opened.value(_INK) != ink  # figures follow
    assert opened.value("document.documentElement.scrollWidth") <= width
    assert opened.value("document.title").endswith(f": {EVERY[name].verdict}")
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("data:")] == [files[name].as_uri()]


_INK = "(t => t && getComputedStyle(t).fill)(document.querySelector('figure .chart svg text'))"


def test_the_legend_hides_and_shows_a_rung_by_keyboard(chromium: browser.Browser, files: dict[str, Path]) -> None:
    opened = chromium.page()
    opened.show(files["full"], 1400)
    lines = "document.querySelectorAll('#figure-latency .mark-line path[d]:not([d=\"\"])').length"
    button = "document.querySelector('#figure-latency button[data-series=\"1\"]')"
    before = opened.value(lines)
    opened.value(f"{button}.focus()")
    for pressed, expected in (("false", before - 1), ("true", before)):
        for kind in ("keyDown", "keyUp"):
            opened.call("Input.dispatchKeyEvent", type=kind, **ENTER)
        assert opened.value(f"{button}.getAttribute('aria-pressed')") == pressed
        assert opened.value(f"new Promise(d => setTimeout(() => d({lines}), 0))") == expected
    assert opened.said == []


def test_another_stage_can_be_chosen(chromium: browser.Browser, files: dict[str, Path]) -> None:
    opened = chromium.page()
    opened.show(files["full"], 1400)
    points = "document.querySelector('#figure-latency .chart').innerHTML"
    before = opened.value(points)
    opened.value(f"(s => {{ {PICK} }})(document.querySelector('#figure-latency select'))")
    assert opened.value(f"new Promise(done => setTimeout(() => done({points}), 0))") != before
    assert opened.said == []


def test_without_scripts_everything_is_there(chromium: browser.Browser, files: dict[str, Path]) -> None:
    opened = chromium.page()
    opened.look(400)
    opened.call("Emulation.setScriptExecutionDisabled", value=True)
    opened.call("Page.navigate", url=files["full"].as_uri())
    opened.heard("Page.loadEventFired")
    root = opened.call("DOM.getDocument")["root"]["nodeId"]
    found = opened.call("DOM.querySelectorAll", nodeId=root, selector=".plot img")["nodeIds"]
    assert len(found) == len(figures.figures(EVERY["full"]))
    for picture in found:
        opened.call("DOM.scrollIntoViewIfNeeded", nodeId=picture)
        box = opened.call("DOM.getBoxModel", nodeId=picture)["model"]
        assert 100 < box["width"] <= 400
        assert box["height"] > 50  # that of the picture: it could be read
