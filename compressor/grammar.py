"""How one value of a family is written in a recipe: `fuse`, or `{quantize: {scheme: auto}}`.

The key is the class's name in lower case and chooses the class; what stands under it are the class's fields.
A new member of a family needs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class Keyed:
    """Marks `Annotated[A | B, Keyed(A, B)]` as read and written under its class's name."""

    def __init__(self, *classes: type[BaseModel]) -> None:
        """Take the members of the family, each a pydantic model."""
        self.classes = {key(cls): cls for cls in classes}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build a union that is told apart by its key, so that errors name the key."""
        choices: dict[Any, CoreSchema] = {
            name: core_schema.no_info_before_validator_function(_settings, handler.generate_schema(cls))
            for name, cls in self.classes.items()
        }
        return core_schema.no_info_before_validator_function(
            self._check_key,
            core_schema.tagged_union_schema(choices, discriminator=_tag),
            serialization=core_schema.wrap_serializer_function_ser_schema(_write),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe both spellings; the bare name only where every field has a default."""
        one_key = [
            {
                "type": "object",
                "properties": {name: handler(cls.__pydantic_core_schema__)},
                "required": [name],
                "additionalProperties": False,
            }
            for name, cls in self.classes.items()
        ]
        bare = [name for name, cls in self.classes.items() if _needs_nothing(cls)]
        return {"anyOf": [*one_key, *([{"enum": bare}] if bare else [])]}

    def _check_key(self, value: Any) -> Any:
        if isinstance(value, BaseModel) or _tag(value) in self.classes:
            return value
        names = ", ".join(self.classes)
        raise PydanticCustomError("key", f"expected one of {names}, found {{found}}", {"found": repr(value)})


def key(cls: type) -> str:
    """Give the word under which a class stands in a recipe."""
    return cls.__name__.lower()


def _needs_nothing(cls: type[BaseModel]) -> bool:
    try:
        cls()
    except ValidationError:
        return False
    return True


def _tag(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        only = list(value)
        return only[0] if len(only) == 1 and isinstance(only[0], str) else None
    return key(type(value))


def _settings(value: Any) -> Any:
    if isinstance(value, str):
        return {}
    if isinstance(value, Mapping):
        (settings,) = value.values()
        return {} if settings is None else settings
    return value


def _write(value: Any, handler: Any) -> Any:
    settings = handler(value)
    return {key(type(value)): settings} if settings else key(type(value))
