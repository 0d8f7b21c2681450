"""Sample files beside a model, and what each is for.

A new ending that names a role is a word in `_ENDINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compressor.errors import InputError
from compressor.samples.source import SUFFIXES

_FOLDER = "calibration_data"
_ENDINGS = {
    "calibration": "calibration",
    "calib": "calibration",
    "evaluation": "evaluation",
    "eval": "evaluation",
    "test": "evaluation",
    "": "both",
}


@dataclass(frozen=True)
class Found:
    """Files by role; the same file twice where one set must serve both, to be split."""

    calibration: Path | None
    evaluation: Path | None


def find(model: str, places: Iterable[Path]) -> list[Path]:
    """Give the sample files of a model, by its name, in the first `calibration_data` of these places that has any.

    They are files that may hold samples, and folders, named after the model, with `_calibration`, `_evaluation` or
    their short forms behind, or nothing. They come sorted.
    """
    for folder in (place / _FOLDER for place in places):
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        if found := [path for path in paths if _holds_samples(path) and _ending(path, model) is not None]:
            return found
    return []


def roles(paths: Sequence[Path], model: str) -> Found:
    """Tell by their names what the files that `find` gave are for.

    Raises:
        InputError: Two serve the same role.
    """
    by_role: dict[str, Path] = {}
    for path in paths:
        role = _ENDINGS[_ending(path, model) or ""]
        if role in by_role:
            raise InputError(
                f"{by_role[role]} and {path} serve the same role; name one of them in the recipe under data"
            )
        by_role[role] = path
    both = by_role.get("both")
    return Found(by_role.get("calibration", both), by_role.get("evaluation", both))


def _holds_samples(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in SUFFIXES


def _ending(path: Path, model: str) -> str | None:
    name = path.name if path.is_dir() else path.stem
    endings = "|".join(filter(None, _ENDINGS))
    match = re.fullmatch(rf"{re.escape(model)}(?:_({endings}))?", name)
    return None if match is None else match[1] or ""
