"""What a figure is: what it shows, in words and as a Vega-Lite chart, and how rungs are told apart in it.

What every figure has is a field of `Figure`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from compressor.errors import printable
from compressor.formats.figures.look import Look, config, role
from compressor.records import Report, Trial

if TYPE_CHECKING:
    import altair as alt

_LONGEST, _LONGEST_CHOICE = 28, 60
HIDDEN, PICKED = "hidden", "picked"
"""Parameters of a chart: the series that are not shown, and the place of the choice that is."""
SHOWN = f"indexof({HIDDEN}, datum.i) < 0"
CHOSEN = f"datum.k == {PICKED}"


@dataclass(frozen=True)
class Key:
    """What a colour, by its role, stands for; with `series`, whose marks can be hidden."""

    label: str
    role: str
    series: int | None = None


@dataclass(frozen=True)
class Figure:
    """A figure: `name` is that of its file, `caption` says how to read it, `alternative` what it shows.

    `choices`: where it shows one of several things at a time, what they are; `first`: the place of the one shown first.
    """

    name: str
    title: str
    caption: str
    alternative: str
    draw: Callable[[Look], alt.LayerChart | alt.Chart]
    keys: tuple[Key, ...] = ()
    choices: tuple[str, ...] = ()
    first: int = 0

    def spec(self, look: Look) -> str:
        """Give the chart as JSON of Vega-Lite, which tells no version: a page holds the one that fits."""
        title = f"{self.title}: {self.choices[self.first]}" if self.choices else self.title
        made: dict[str, Any] = self.draw(look).properties(width=look.width).to_dict(validate=False)
        made.pop("$schema", None)
        made |= {"config": config(look), "description": self.alternative, "padding": 16 if look.alone else 2}
        made["autosize"] = {"type": "fit-x" if look.width == "container" else "pad", "contains": "padding"}
        if look.alone:
            made["title"] = title
        return json.dumps(made, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Series:
    """A rung, or the baseline: its place in the report, what it is called in figures, and its record."""

    i: int
    label: str
    trial: Trial

    @property
    def key(self) -> Key:
        """Its entry in a legend."""
        return Key(self.label, role(self.i), self.i)


def series(report: Report) -> tuple[Series, ...]:
    """Give the baseline and the rungs, each under a short name of its own."""
    trials = (report.baseline, *report.trials)
    return tuple(map(Series, range(len(trials)), distinct([trial.rung for trial in trials]), trials))


def distinct(names: Sequence[str], longest: int = _LONGEST) -> tuple[str, ...]:
    """Give short labels, of which no two are the same."""
    labels: list[str] = []
    for name in names:
        short = printable(name, longest)
        numbered = (f"{short} ({number})" for number in count(2))
        labels.append(next(label for label in chain([short], numbered) if label not in labels))
    return tuple(labels)


def choices(names: Sequence[str]) -> tuple[str, ...]:
    """Give what can be chosen between, each under a name of its own."""
    return distinct(names, _LONGEST_CHOICE)


def short(name: str) -> str:
    """Give a name of a node, an operator or an output as a figure shows it."""
    return printable(name, _LONGEST)


def values(rows: Sequence[Any]) -> alt.InlineData:
    """Give records as the data of a chart, a column a field."""
    import altair as alt

    return alt.InlineData(values=[{name: _finite(one) for name, one in asdict(row).items()} for row in rows])


def _finite(value: Any) -> Any:
    """Give a value that JSON has: a number that is not finite is none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def colours(keys: Sequence[Key], look: Look, *, legend: bool = True) -> alt.Color:
    """Colour marks by the label in a field, in the order of the legend."""
    import altair as alt

    scale = alt.Scale(domain=[key.label for key in keys], range=[look.colour(key.role) for key in keys])
    shown = alt.Legend() if look.alone and legend else None
    return alt.Color("series", type="nominal", scale=scale, legend=shown)


def tooltip(fields: Sequence[tuple[str, str]]) -> list[alt.Tooltip]:
    """Show fields, each under a title, where a pointer rests."""
    import altair as alt

    return [alt.Tooltip(field, type="nominal", title=title) for field, title in fields]


def listed(parts: Sequence[str]) -> str:
    """Give parts of an alternative text as one."""
    return "; ".join(parts)
