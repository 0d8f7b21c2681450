"""How figures and the page that holds them look: colours by role, light and dark, and what a Vega-Lite chart is told.

A role is a line in `LIGHT` and in `DARK`; what all charts share is a line in `config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SERIES = 8
"""Colours of rungs; the first is the baseline's, and only the others are used again where there are more rungs."""
LIGHT: Mapping[str, str] = {
    "page": "#f6f7f9",
    "card": "#ffffff",
    "sunk": "#f1f3f6",
    "ink": "#1a1d23",
    "soft": "#59606d",
    "line": "#dfe3e9",
    "accent": "#0b63b0",
    "good": "#0a7d4f",
    "bad": "#c02b22",
    "open": "#8f5b00",
    "s0": "#7b8494",
    "s1": "#0072b2",
    "s2": "#d55e00",
    "s3": "#009e73",
    "s4": "#b5509a",
    "s5": "#2792cb",
    "s6": "#b98500",
    "s7": "#6f5bd0",
}
"""Series after Okabe and Ito 2008, which the colour-blind tell apart, some darker: on white they are to be seen."""
DARK: Mapping[str, str] = {
    "page": "#0f1216",
    "card": "#181c22",
    "sunk": "#20252d",
    "ink": "#e9ecf1",
    "soft": "#a3acba",
    "line": "#2f363f",
    "accent": "#72b7f2",
    "good": "#4cc38a",
    "bad": "#ff8a7d",
    "open": "#efb23f",
    "s0": "#98a2b3",
    "s1": "#4aa8e8",
    "s2": "#f58a42",
    "s3": "#2fc296",
    "s4": "#dd8fc6",
    "s5": "#8fd0f5",
    "s6": "#e3b23c",
    "s7": "#a594f9",
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


@dataclass(frozen=True)
class Look:
    """Colours by role, the width in pixels, and whether a chart stands alone: then it holds its title and legend."""

    colours: Mapping[str, str]
    width: int | Literal["container"]
    alone: bool

    def colour(self, role: str) -> str:
        """Give the colour of a role."""
        return self.colours[role]


PAGE = Look({role: f"var(--{role})" for role in LIGHT}, "container", alone=False)
"""For the page, whose style sheet says what the colours are; title and legend stand in its text."""
PAPER = Look(LIGHT, 680, alone=True)
"""For pictures beside Markdown."""


def role(series: int) -> str:
    """Give the role of a series by its place, the baseline's first."""
    return f"s{series if series < SERIES else (series - 1) % (SERIES - 1) + 1}"


def config(look: Look) -> Mapping[str, Any]:
    """Give what all charts share, as Vega-Lite's `config`."""
    ink, soft, line = map(look.colour, ("ink", "soft", "line"))
    return {
        "font": "Arial, sans-serif" if look.alone else _FONT,
        "aria": not look.alone,
        "background": look.colour("card") if look.alone else "transparent",
        "view": {"stroke": None},
        "axis": {
            "domain": False,
            "grid": False,
            "gridColor": line,
            "tickColor": line,
            "tickSize": 4,
            "labelColor": soft,
            "labelFontSize": 12,
            "labelLimit": 150,
            "labelPadding": 6,
            "titleColor": soft,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 10,
        },
        "axisQuantitative": {"grid": True, "ticks": False},
        "legend": {
            "disable": not look.alone,
            "orient": "top",
            "title": None,
            "labelColor": ink,
            "labelFontSize": 12,
            "labelLimit": 190,
            "symbolOpacity": 1,
            "columns": 3,
        },
        "title": {"color": ink, "fontSize": 15, "fontWeight": 600, "anchor": "start", "offset": 14},
        "text": {"color": ink, "fontSize": 12},
        "bar": {"cornerRadiusEnd": 2},
    }
