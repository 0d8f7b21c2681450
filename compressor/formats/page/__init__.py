"""report.html: one file that needs no network, the verdict first, with the figures of `figures` and every section.

What the page holds is a line in `_TOLD`; how it looks stands in page.css, what it does in page.js, its order in
page.html.jinja. Jinja2 is loaded nowhere else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from compressor.errors import printable
from compressor.formats import figures
from compressor.formats.figures import DARK, LIGHT, PAGE, Drawn
from compressor.formats.page.tiles import STATE, nearest, tiles
from compressor.formats.sections import Block, Section, Title, channels, measured, proved, told, ways
from compressor.formats.sentence import sentence
from compressor.records import Report, Trial
from compressor.units import human_duration

if TYPE_CHECKING:
    import jinja2

_LONGEST_TITLE = 200
_PLACE = "<!-- registered -->"
_PARTS = re.compile(r",? (?=[(\[])|, (?=over |\d+ rounds)")
"""Where what stands beside a figure begins: its interval, what it rests on."""
_KINDS = {"Table": "table", "Items": "items", "Title": "title", "Code": "code", "Folded": "folded", "str": "text"}
_WORD = {"pass": ("Pass", "good"), "fail": ("Fail", "bad"), "inconclusive": ("Inconclusive", "open")}


@dataclass(frozen=True)
class Fold:
    """What is folded away under a summary."""

    summary: str
    blocks: tuple[Block, ...]


def render(report: Report) -> str:
    """Give the report as a page, in which no name or reason of the report is read as markup or script."""
    return page(report, *figures.drawn(report))


def page(report: Report, drawn: Sequence[Drawn], refused: Sequence[str] = ()) -> str:
    """Give the report as a page with figures that are drawn already, and warnings of those that could not be."""
    scripts = tuple(map(_whole, (figures.bundle(), _file("page.js")))) if drawn else ()
    return _template().render(
        colours={"light": LIGHT, "dark": DARK},
        style=_file("page.css"),
        scripts=scripts,
        policy=_policy(scripts),
        specs=_data({one.figure.name: json.loads(one.figure.spec(PAGE)) for one in drawn}),
        drawn=drawn,
        **_words(replace(report, warnings=(*report.warnings, *refused))),
    )


def registered(made: str, report: Report) -> str:
    """Give a page that was made before its report was recorded with the words on where it stands now."""
    before, _, rest = made.partition(_PLACE)
    return f"{before}{_registration(report)}{rest[rest.index('</p>') :]}"


def plain(name: str) -> str:
    """Give text on one line, which the template escapes."""
    return " ".join(printable(name).split())


def _words(report: Report) -> Mapping[str, Any]:
    word, state = _WORD[report.verdict]
    decided = nearest(report)
    return {
        "name": printable(report.model.name, _LONGEST_TITLE),
        "word": word,
        "state": state,
        "sentence": sentence(report, plain),
        "tiles": tiles(report, plain),
        "decided": plain(decided.rung) if decided else "",
        "chosen": report.chosen is not None,
        "machine": plain(report.environment.cpu),
        "threads": report.environment.threads,
        "started": report.started,
        "took": human_duration(report.duration_s),
        "registered": _registration(report),
        "sections": {name: tell(report, plain) for name, tell in _TOLD.items()},
        "states": {"rungs": [_state(trial) for trial in _trials(report)], "gates": _verdicts(report)},
    }


def _registration(report: Report) -> str:
    """Give the place of the words on the registry, as markup, and the words where there are some."""
    known = report.registry
    if known is None or known.version is None:
        return _PLACE
    model, version, alias = (escape(plain(name)) for name in (known.model, known.version, known.alias or ""))
    told = f"Registered as <bdi>{model}</bdi> version {version}{', ' if alias else ''}{alias}."
    return f"{_PLACE} {told}"


def _trials(report: Report) -> tuple[Trial, ...]:
    return report.baseline, *report.trials


def _state(trial: Trial) -> str:
    """Give how the gates judged a rung."""
    if trial.failure:
        return STATE[False]
    met = [verdict.met for verdict in trial.verdicts]
    return "" if not met else STATE[False if False in met else None if None in met else True]


def _verdicts(report: Report) -> list[str]:
    return [STATE[verdict.met] for trial in _trials(report) for verdict in trial.verdicts]


def _folds(section: Section) -> tuple[Fold, ...]:
    """Give what stands under each title of a section, all under none where it has none."""
    folds: list[tuple[str, list[Block]]] = [("", [])]
    for block in section.blocks:
        if isinstance(block, Title):
            folds.append((block.text, []))
        else:
            folds[-1][1].append(block)
    return tuple(Fold(summary, tuple(blocks)) for summary, blocks in folds if blocks)


def _code(text: str) -> str:
    """Give lines as they are, but for what is no character to show."""
    return "\n".join(printable(line, len(text) * 10 + 1) for line in text.rstrip().split("\n"))


def _data(specs: Mapping[str, Any]) -> str:
    """Give JSON that neither ends its element nor begins another."""
    text = json.dumps(specs, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _whole(script: str) -> str:
    """Give a script whose own text does not end its element."""
    return script.replace("</script", "<\\/script")


def _policy(scripts: Iterable[str]) -> str:
    """Give the content security policy: these scripts may run, and nothing may be loaded from anywhere."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code": _code,
        "folds": _folds,
        "kind": _kind,
        "parts": _PARTS.split,
        "picture": _picture,
        "plain": plain,
    }
    return environment.from_string(_file("page.html.jinja"))


def _picture(drawn: Drawn) -> str:
    """Give the address that holds a picture, which stands there until its figure is drawn anew."""
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.svg.encode()).decode()}"


def _kind(block: Block) -> str:
    return _KINDS[type(block).__name__]


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


_TOLD = {
    "verified": proved.verified,
    "warnings": told.warnings,
    "rungs": measured.rungs,
    "engines": measured.engines,
    "gates": measured.gates,
    "champion": proved.champion,
    "others": measured.others,
    "quality": measured.quality,
    "costs": measured.costs,
    "stages": told.stages,
    "pruned": channels.pruned,
    "tried": ways.tried,
    "operators": ways.operators,
    "data": told.data,
    "environment": told.environment,
    "loading": told.loading,
    "recipe": told.recipe,
}
