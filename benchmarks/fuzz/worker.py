"""The child that meets mutants as a user's command would, and judges what came of each.

A new kind of file is a function in `TRIALS`.
"""

from __future__ import annotations

import csv
import io
import os
import resource
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import yaml
from bases import classifier

from compressor import graph, isolation, plan, recipe
from compressor.pipeline import look
from compressor.recipe import Calibration, Data, Overrides, Recipe
from compressor.registry import Registry

MEMORY_BYTES = 6 * 2**30
"""Address space of the child; what asks for more gets the error that a smaller machine would give."""
_SMALL_BYTES = 2**30
"""What a recipe or a file of samples may take at most."""
_LONGEST, _MOST_LINES = 600, 6
_SAME_DB = 40.0
_FEEDS = 2
_ACCEPTED, _REFUSED, _FAILED = "accepted", "refused", "failed"


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant: accepted, refused with a sentence, or failed, and why."""

    what: str
    why: str = ""


class Refused(Exception):  # noqa: N818 - no error but an outcome
    """The mutant was refused with this sentence."""


def serve(connection: Connection) -> None:
    """Meet one mutant after another, once what takes long to import has met a sound model."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what vendors log is nobody's message
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "net.onnx").write_bytes(classifier())
        connection.send(_met(TRIALS["model"], path))
    while True:
        kind, path = connection.recv()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak
        outcome = _met(TRIALS[kind], path)
        peak = isolation.peak_memory_bytes()  # the same measure as of every piece of work
        if peak > _SMALL_BYTES and kind != "model":
            outcome = Outcome(_FAILED, f"took {peak / 1e9:.2f} GB of memory ({outcome})")
        connection.send(outcome)


def unreadable(sentence: str, path: Path) -> str:
    """Say what is wrong with a sentence; empty where a person can read it."""
    lines = sentence.replace(str(path), "FILE").replace(str(path.parent), "FOLDER").split("\n")
    if not sentence.strip():
        return "an empty sentence"
    if len(lines) > (_MOST_LINES if path.suffix == ".yaml" else 1):
        return f"{len(lines)} lines: {sentence!r}"
    if longest := next((line for line in lines if len(line) > _LONGEST), None):
        return f"{len(longest)} characters: {longest[:300]!r} … {longest[-100:]!r}"
    if odd := next((c for c in "".join(lines) if category(c) in {"Cc", "Cs", "Zl", "Zp"} or c == "\u202e"), None):
        return f"the character {odd!r}: {sentence!r}"
    return f"a traceback: {sentence!r}" if "Traceback" in sentence or 'File "' in sentence else ""


def _met(trial: Callable[[Path], None], path: Path) -> Outcome:
    try:
        trial(path)
    except Refused as refusal:
        wrong = unreadable(str(refusal), path)
        return Outcome(_FAILED, wrong) if wrong else Outcome(_REFUSED, str(refusal))
    except Exception:  # noqa: BLE001 - a traceback of ours is what is looked for
        return Outcome(_FAILED, traceback.format_exc())
    return Outcome(_ACCEPTED)


def _asked(work: Callable[..., Any], *arguments: object) -> Any:
    """Call a piece of work as its child would, and give what the caller would see."""
    try:
        return work(*arguments)
    except Exception as error:
        ours = isolation.ours(error)
        if ours is None:
            raise
        raise Refused(str(ours)) from error


def _model(path: Path) -> None:
    if path.stat().st_size % 3 == 0:  # it takes half of the time
        _asked(look._inspect, path, {}, True, ())  # noqa: FBT003, SLF001 - the call that the command makes in its child
    asked = Recipe(registry=Registry(uri="none"))
    settled = _asked(plan.make, plan.Job(path, asked, path.parent / "reports", path.parent))
    _same(path, settled)


def _same(path: Path, settled: plan.Plan) -> None:
    """Run what was accepted without any of our code, and hold its normal form against it."""
    first, *others = (feed for feed, _ in zip(settled.calibration, range(_FEEDS), strict=False))
    original = _session(path)
    normal = path.parent / "normal" / path.name
    normal.parent.mkdir()
    _asked(graph.normalise, path, normal)
    other = _session(normal)
    for feed in (first, *others):
        try:
            before = original(feed)
        except Exception:
            if feed is first:
                raise
            continue  # it was accepted for its first sample; what fails on others costs the rungs that meet them
        after = other(feed)
        far = {name: _sqnr_db(array, after[name]) for name, array in before.items()} if settled.steady else {}
        if wrong := next((name for name, db in far.items() if db < _SAME_DB), None):
            raise AssertionError(f"the normal form's output {wrong!r} differs: {far[wrong]:.1f} dB")


def _session(path: Path) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, dict(feed)), strict=True))


def _sqnr_db(before: Any, after: Any) -> float:
    """Give the ratio of signal and difference; where numbers are not finite they must be the same."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return -np.inf
    if before.dtype.kind not in "fiu":
        return np.inf if (before == after).all() else -np.inf
    one, other = before.astype(np.float64), after.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return -np.inf
    noise = float(np.square(one[finite] - other[finite]).sum())
    signal = float(np.square(one[finite]).sum())
    return np.inf if noise == 0 else 10 * float(np.log10(max(signal, 1e-30) / noise))


def _recipe(path: Path) -> None:
    read = _asked(recipe.read, path)
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    if Recipe.model_validate(plain) != read:
        raise AssertionError(f"read as {read!r}, where YAML says {plain!r}")
    for everything in (True, False):
        written = recipe.write(read, everything=everything)
        if recipe.parse(written, "written") != read:
            raise AssertionError(f"written so that it reads as another:\n{written}")


def _samples(path: Path) -> None:
    model = path.parent / "net.onnx"
    model.write_bytes(classifier())
    asked = recipe.override(Recipe(registry=Registry(uri="none")), Overrides(sla="50ms"))
    asked = asked.model_copy(update={"data": Data(calibration=Calibration(path=path))})
    settled = _asked(plan.make, plan.Job(model, asked, path.parent / "reports", path.parent))
    truth = _truth(path, settled.calibration.fits[0].column.name)
    for samples in filter(None, (settled.calibration, settled.evaluation)):
        expected = truth[list(samples.indices)].astype(np.float32)
        given = np.concatenate([feed["x"] for feed in samples])
        if not np.array_equal(given.reshape(expected.shape), expected):
            raise AssertionError("samples come out as other numbers than others read")


def _truth(path: Path, name: str) -> Any:
    """Give the numbers as others read them."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = (row for row in csv.reader(file) if any(map(str.strip, row)))
        names = [name.strip() for name in header]
        named = [names.index(f"x_{i}") for i in range(6) if f"x_{i}" in names]
        places = named if len(named) == 6 else [at for at, name in enumerate(names) if name.lower() != "label"]  # noqa: PLR2004 - what the model takes
        return np.array([[float(row[at]) for at in places] for row in rows])
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
        return np.stack([table.column(f"x_{i}").to_numpy() for i in range(6)], axis=1)
    found = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    return found if isinstance(found, np.ndarray) else found[name]


TRIALS: Mapping[str, Callable[[Path], None]] = {"model": _model, "recipe": _recipe, "samples": _samples}
