"""report.html as a program reads it: whole, harmless, the same as the text, and enough without scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from illustrated import EVERY, FAILED, FULL, HARMFUL, INT8, hostile

from compressor import formats
from compressor.formats import markdown, page
from compressor.formats.page.tiles import tiles
from compressor.records import Bound

MOST_BYTES = 1_500_000
VOID = {"meta", "link", "img", "br", "rect", "path"}
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Reader(HTMLParser):
    """What elements a page has, and which text stands in which of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.inside.pop() == tag  # each element ends where it should

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.inside), data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def shown(self) -> str:
        hidden = {"script", "style"}
        return " ".join(" ".join(text.split()) for inside, text in self.texts if not hidden & set(inside))

    def told(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside and inside[-1] == tag]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_page_is_whole_and_loads_nothing(pages: dict[str, str], name: str) -> None:
    text = pages[name]
    read = Reader(text)
    assert not read.inside
    assert len(text.encode()) < MOST_BYTES
    for tag, attributes in read.elements:
        assert not [key for key in attributes if key.startswith("on")], tag
        for key in ("src", "href", "action", "srcset", "data"):
            assert (attributes.get(key) or "data:").startswith("data:"), (tag, attributes)
    assert not {tag for tag, _ in read.elements} & {"iframe", "object", "embed", "form", "base", "a"}
    assert read.of("html") == [{"lang": "en"}]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_only_the_page_s_own_scripts_may_run(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    (policy,) = (meta["content"] for meta in read.of("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy
    told = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert told["default-src"] == "'none'"
    assert "unsafe" not in told["script-src"]
    kinds = [attributes.get("type") for attributes in read.of("script")]
    if name == "bare":
        assert kinds == []
        assert told["script-src"] == "'none'"
        return
    assert kinds == ["application/json", None, None]
    scripts = re.findall(r"<script>(.*?)</script>", pages[name], re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert told["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert "<!--" not in scripts[0]


def test_what_a_report_names_is_text(pages: dict[str, str]) -> None:
    read = Reader(pages["hostile"])
    for name in HARMFUL[:2]:
        assert " ".join(name.split()) in read.shown()
    assert "49" not in read.told("h1")
    assert not CONTROLS.search(pages["hostile"].partition("<script>")[0])
    (data,) = (text for inside, text in read.texts if inside[-1:] == ("script",) and text.startswith("{"))
    assert not set("<>&\u2028\u2029") & set(data)
    assert json.loads(data).keys() == {one.name for one in formats.figures.figures(hostile())}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_page_tells_what_the_text_tells(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    titles = re.findall(r"^## (.*)$", markdown.render(EVERY[name]), re.MULTILINE)
    headings = read.told("h2")
    assert set(titles) - {"Warnings"} <= set(headings)
    word = {"pass": "Pass", "fail": "Fail", "inconclusive": "Inconclusive"}[EVERY[name].verdict]
    assert word in read.told("p")[1:4] or word in read.shown()
    assert " ".join(formats.sentence(EVERY[name], page.plain).split()) in read.shown()


def test_it_can_be_read_aloud(pages: dict[str, str]) -> None:
    read = Reader(pages["full"])
    assert len(read.of("h1")) == 1
    assert all(attributes.get("scope") in {"col", "row"} for attributes in read.of("th"))
    assert all(attributes.get("alt") for attributes in read.of("img"))
    assert all(attributes.get("aria-label") for attributes in read.of("div") if attributes.get("role") == "region")
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_each_figure_stands_there_as_a_picture_before_a_script_draws_it(pages: dict[str, str]) -> None:
    names = [one.name for one in formats.figures.figures(FULL)]
    read = Reader(pages["full"])
    assert [attributes["data-figure"] for attributes in read.of("figure")] == names
    pictures = [attributes["src"] or "" for attributes in read.of("img")]
    assert len(pictures) == len(names)
    for picture in pictures:
        assert base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,")).startswith(b"<svg")


def test_the_same_report_gives_the_same_page(pages: dict[str, str]) -> None:
    assert page.render(FULL) == pages["full"]


def test_tiles_tell_of_what_was_chosen() -> None:
    size, speed, p99, score = tiles(FULL, page.plain)
    assert (size.figure, size.notes) == ("6.4 MB", ("4.00 times smaller", "from 25.6 MB"))
    assert (speed.figure, speed.notes[0]) == ("2.50x", "95 % interval 2.25 to 2.75")
    assert (p99.label, p99.state, p99.notes[1]) == ("p99 at most", "good", "limit 8 ms")
    assert INT8.measurement
    assert p99.share == pytest.approx(100 * (INT8.measurement.latency.p99_high_ms or 0) / 8)
    assert (score.label, score.figure, score.state) == ("top1", "0.745", "good")


@pytest.mark.parametrize(
    ("p50", "p99", "label", "state"),
    [
        (False, True, "p50", "bad"),
        (True, True, "p99", "good"),
        (True, None, "p99", "open"),
        (None, False, "p99", "bad"),
    ],
)
def test_a_tile_shows_the_numbers_of_the_gate_whose_verdict_it_shows(
    p50: bool,  # noqa: FBT001
    p99: bool,  # noqa: FBT001
    label: str,
    state: str,
) -> None:
    assert INT8.measurement
    bounds = (Bound(50.0, 0.9, 2.0, 1.9, 2.1, 1.0), Bound(99.0, 0.99, 3.0, 2.9, 3.4, 4.0))
    latency = replace(INT8.measurement.latency, bounds=bounds)
    met = {"latency p50": p50, "latency p99": p99, "latency p99 at batch 8": False}
    verdicts = tuple(replace(INT8.verdicts[0], gate=gate, met=judged) for gate, judged in met.items())
    trial = replace(INT8, measurement=replace(INT8.measurement, latency=latency), verdicts=verdicts)
    shown = next(t for t in tiles(replace(FULL, trials=(trial,)), page.plain) if t.label.startswith("p"))
    assert (shown.label, shown.state) == (f"{label} at most", state)
    assert shown.notes[0].startswith({"p50": "upper 90 % limit", "p99": "upper 99 % limit"}[label])


def test_tiles_of_a_failure_tell_of_the_rung_that_came_nearest() -> None:
    states = {tile.label: tile.state for tile in tiles(FAILED, page.plain)}
    assert states["p99 at most"] == "bad"
    assert states["size"] == ""
    assert tiles(EVERY["bare"], page.plain) == ()
    assert len(tiles(replace(FAILED, trials=()), page.plain)) == 3  # the baseline's have no speed-up
