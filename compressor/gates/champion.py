"""What a rung may lose beside the model that is served now: the recipe's `baseline`, a registered version.

What else must not be worse is a field of `Tolerance` and a part in `Champion.judge`.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from compressor.units import Fraction

_SCHEME = "models:/"


class Tolerance(BaseModel, frozen=True, extra="forbid"):
    """How much worse than the champion a rung may be: shares of the champion's own value, of accuracy in points.

    `speed` is how much longer an inference may take. `accuracy` unset: what the accuracy gate allows. The others are
    asked only where the recipe has a gate of that name.
    """

    speed: Fraction = 0.02
    accuracy: Fraction | None = None
    size: Fraction = 0.02
    memory: Fraction = 0.05
    startup: Fraction = 0.1
    macs: Fraction = 0.02
    parameters: Fraction = 0.02
    nodes: Fraction = 0.02


class Champion(BaseModel, frozen=True, extra="forbid"):
    """A registered version, `models:/NAME@ALIAS` or `models:/NAME/VERSION`, that a rung must not be worse than.

    It is measured in the same run, in turn with each rung that meets every gate, and never against an older number.
    """

    model: str
    tolerance: Tolerance = Tolerance()

    @field_validator("model")
    @classmethod
    def _check_named(cls, model: str) -> str:
        name = model.removeprefix(_SCHEME)
        if not (model.startswith(_SCHEME) and all(name.partition("@" if "@" in name else "/")[::2])):
            raise ValueError(f"expected {_SCHEME}NAME@ALIAS or {_SCHEME}NAME/VERSION, found {model!r}")
        return model

    @model_validator(mode="before")
    @classmethod
    def _spelt_out(cls, value: Any) -> Any:
        """Read the name alone, too."""
        return {"model": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe both spellings."""
        return {"anyOf": [{"type": "string", "pattern": f"^{_SCHEME}.+"}, handler(schema)]}
