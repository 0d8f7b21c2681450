"""How a version in the registry is named.

Another way to name one is a field of `VersionName` and a branch in `read`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

REGISTERED = "models:/"
"""What such names begin with."""
LATEST = "latest"


@dataclass(frozen=True)
class VersionName:
    """A registered version, `models:/MODEL@ALIAS` or `models:/MODEL/VERSION`; the version is a number or `latest`."""

    model: str
    wanted: str
    is_alias: bool = False

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a name.

        Raises:
            ValueError: It is none; the sentence says what is.
        """
        model, mark, wanted = (name := text.removeprefix(REGISTERED)).partition("@" if "@" in name else "/")
        if not (text.startswith(REGISTERED) and model and wanted):
            raise ValueError(f"expected {REGISTERED}NAME@ALIAS or {REGISTERED}NAME/VERSION, found {text!r}")
        return cls(model, wanted, mark == "@")

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"{REGISTERED}{self.model}{'@' if self.is_alias else '/'}{self.wanted}"
