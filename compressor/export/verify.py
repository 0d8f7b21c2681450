"""An exported file run beside the module that it was made of.

Another condition of being the same is a check in `_differing`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from compressor import runtime
from compressor.errors import InputError, RungError
from compressor.export.inputs import Symbols, drawn
from compressor.export.program import Program
from compressor.records import Array, Feeds, Outputs
from compressor.runtime.distance import Distance

LEAST_DB = 40.0
"""Rounding leaves over 100 dB in float32 and about 55 in float16; a wrong graph is below 20."""
_MOST_FLIPPED = 0.001
"""Of an output of whole numbers or truth values, as an argmax flips where two scores are rounded alike."""
_SEED = 2  # not the values that the program was traced with: what was frozen by them shows


def outputs(program: Program) -> Outputs:
    """Run the module at the sizes that were given.

    Raises:
        InputError: The caller's code fails, or nothing that it gives in an output is finite.
    """
    return _run(program, drawn(program.inputs, program.sizes, _SEED))


def repeats(program: Program) -> bool:
    """Tell whether the module gives the same when it is run again on the same values."""
    one, other = outputs(program), outputs(program)
    return all(np.array_equal(one[name], other[name], equal_nan=_is_float(one[name])) for name in one)


def odd(found: Outputs) -> list[str]:
    """Name the outputs with values that are not finite."""
    return [name for name, value in found.items() if _is_float(value) and not np.isfinite(value).all()]


def compared(program: Program, sizes: Symbols, path: Path) -> tuple[float, str]:
    """Give the SQNR in dB of the worst output of the file against the module, and what differs, if anything does.

    Raises:
        InputError: The caller's code fails at these sizes of the open axes, or ONNX Runtime does.
    """
    feeds = drawn(program.inputs, sizes, _SEED)
    wanted = _run(program, feeds)
    try:
        with closing(runtime.load(path, runtime.options(1, spinning=False))) as session:
            found = session(feeds)
    except RungError as error:
        raise InputError(str(error)) from error
    differing = (f"{name}: {why}" for name, value in wanted.items() if (why := _differing(value, found[name])))
    return min(_db(Distance().plus(value, found[name])) for name, value in wanted.items()), "; ".join(differing)


def _run(program: Program, feeds: Feeds) -> Outputs:
    found = program.outputs(feeds)
    for name, value in found.items():
        if _is_float(value) and value.size and not np.isfinite(value).any():
            raise InputError(
                f"{program.model}: output {name} is nowhere finite, so no file can be compared with it; give "
                "weights with which it is"
            )
    return found


def _differing(wanted: Array, found: Array) -> str:
    """Say in what an output is not the module's; empty if it is."""
    if (wanted.dtype, wanted.shape) != (found.dtype, found.shape):
        return f"{found.dtype} of shape {found.shape}, expected {wanted.dtype} of shape {wanted.shape}"
    if not _is_float(wanted):
        flipped = np.count_nonzero(wanted != found)
        return f"{flipped} of {wanted.size} values differ" if flipped > _MOST_FLIPPED * wanted.size else ""
    if not np.array_equal(_not_finite(wanted), _not_finite(found), equal_nan=True):
        return "not finite in other places"
    db = Distance().plus(wanted, found).db
    return f"SQNR {db:.0f} dB" if db < LEAST_DB else ""


def _not_finite(values: Array) -> Array:
    return np.where(np.isfinite(values), 0, values)


def _is_float(values: Array) -> bool:
    return values.dtype.kind == "f"


def _db(distance: Distance) -> float:
    return max(distance.db, distance.agreement_db) if distance.n else distance.db
