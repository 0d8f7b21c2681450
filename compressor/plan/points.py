"""The further points at which a model is measured: other batch sizes and shapes, with samples, each known to run.

Another way to state a point is a branch in `_shapes`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from compressor import gates, runtime
from compressor.errors import InputError, RungError
from compressor.gates import At
from compressor.plan import data
from compressor.plan.data import Files
from compressor.plan.dims import at_batch, restated
from compressor.recipe import Recipe
from compressor.records import Model, Shapes
from compressor.samples import Samples


@dataclass(frozen=True)
class Point:
    """Where latency is measured: `at` tells points apart and is empty for the main one."""

    at: str
    shapes: Shapes
    samples: Samples


def points(
    found: Files | None, recipe: Recipe, model: Model, shapes: Shapes
) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """Give the points that the recipe or one of its gates states, each once, and what is odd about their samples.

    Raises:
        InputError: A point does not fit the model, or the model does not run there.
    """
    wanted = {at.name(): at for at in (*recipe.others, *gates.points(recipe.gates))}
    made, notes = [], []
    for name, at in wanted.items():
        there = _shapes(at, model, shapes)
        samples, why = data.at_shapes(found, recipe, model, there)
        made.append(Point(name, there, samples))
        notes += [f"{name}: measured on made-up inputs ({why})"] if why else []
    if made:
        _check_run(model.path, made)
    return tuple(made), tuple(notes)


def _shapes(at: At, model: Model, shapes: Shapes) -> Shapes:
    if at.batch is not None:
        return at_batch(model.inputs, shapes, at.batch)
    return restated(model.inputs, shapes, at.shapes)


def _check_run(path: Path, made: list[Point]) -> None:
    """Run the model once at each point: what a graph fixes inside is seen only so."""
    with closing(runtime.load(path, runtime.options(1, spinning=False))) as session:
        for point in made:
            try:
                session(next(iter(point.samples)))
            except RungError as error:
                raise InputError(
                    f"{path}: {point.at}: {error}; export the model so that it runs there, or leave this point out"
                ) from error
