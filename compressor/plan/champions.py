"""What a recipe's `baseline` and `proved_on` come to: the version that is served now, and whether this machine counts.

What else must be known of the champion before any work is a step of `pinned`.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor import machine, registry
from compressor.errors import InputError
from compressor.recipe import Recipe
from compressor.records import Environment

_SCHEME, _FIRST = "models:/", "champion"


def pinned(recipe: Recipe, uri: str | None) -> tuple[Recipe, str | None]:
    """Give the recipe with the version that its baseline stands for now, and that version, NAME/VERSION.

    None where there is no champion yet under the name that this run registers.

    Raises:
        InputError: There is no registry, or no such version.
        MachineError: The registry does not answer.
    """
    if recipe.baseline is None:
        return recipe, None
    asked = recipe.baseline.model
    if uri is None:
        raise InputError(f"baseline: {asked} is looked up in a registry, and there is none: give --registry URI")
    name = asked.removeprefix(_SCHEME)
    found = registry.find(uri, name)
    if found is None:
        if name == f"{recipe.registry.name}@{_FIRST}":
            return recipe, None
        raise InputError(
            f"baseline: {asked}: there is no such version: name one that is there (`compress history` shows them), or "
            f"{_SCHEME}{recipe.registry.name}@{_FIRST}, which this run may be the first to register"
        )
    pinned = recipe.baseline.model_copy(update={"model": f"{_SCHEME}{found}"})
    return recipe.model_copy(update={"baseline": pinned}), found


def doubts(recipe: Recipe, environment: Environment, champion: str | None) -> Iterator[str]:
    """Say what a reader of the outcome must know."""
    if recipe.baseline is not None and champion is None:
        yield f"{recipe.baseline.model}: there is no such version yet, so that nothing is held against it"
    if recipe.proved_on is not None and not machine.is_named(environment.cpu, recipe.proved_on):
        yield (
            f"this machine is {environment.cpu!r}, and the recipe is proved on {recipe.proved_on!r}: what passes here "
            "is a candidate, until `compress verify` proves it there"
        )
