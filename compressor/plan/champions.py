"""What a recipe's `baseline` and `proved_on` come to: the version that is served now, and whether this machine counts.

What else must be known of the champion before any work is a step of `pinned`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compressor import gates, machine, registry
from compressor.errors import InputError
from compressor.recipe import Recipe
from compressor.records import Environment, VersionName

_FIRST = "champion"


@dataclass(frozen=True)
class Pinned:
    """The version, by its number, that a recipe's baseline stands for now, and the name by which it is asked for."""

    asked: VersionName
    version: VersionName


def pinned(recipe: Recipe, uri: str | None) -> tuple[Recipe, Pinned | None]:
    """Give the recipe with the version that its baseline stands for now, and that version.

    None where there is no champion yet under the name that this run registers.

    Raises:
        InputError: There is no registry, or no such version.
        MachineError: The registry does not answer.
    """
    if recipe.baseline is None:
        return recipe, None
    asked = VersionName.read(recipe.baseline.model)
    if uri is None:
        raise InputError(f"baseline: {asked} is looked up in a registry, and there is none: give --registry URI")
    found = registry.find(uri, asked)
    if found is None:
        first = VersionName(recipe.registry.name or "", _FIRST, is_alias=True)
        if asked == first:
            return recipe, None
        raise InputError(
            f"baseline: {asked}: there is no such version: name one that is there (`compress history` shows them), or "
            f"{first}, which this run may be the first to register"
        )
    baseline = recipe.baseline.model_copy(update={"model": str(found)})
    return recipe.model_copy(update={"baseline": baseline}), Pinned(asked, found)


def doubts(recipe: Recipe, environment: Environment, champion: Pinned | None) -> Iterator[str]:
    """Say what a reader of the outcome must know."""
    if recipe.baseline is not None and champion is None:
        yield f"{recipe.baseline.model}: there is no such version yet, so that nothing is held against it"
    if champion is not None and (recipe.load.open or gates.points(recipe.gates)):
        yield (
            f"{champion.version}: rungs are held against it one call after another, at the recipe's own shapes, and "
            "not under other loads or at further points"
        )
    if recipe.proved_on is not None and not machine.is_named(environment.cpu, recipe.proved_on):
        yield (
            f"this machine is {environment.cpu!r}, and the recipe is proved on {recipe.proved_on!r}: what passes here "
            "is a candidate, until `compress verify` proves it there"
        )
