"""Outputs that are no tensors, as arrays that can be compared and scored.

ONNX Runtime gives a sequence as a list and a map as a dictionary; another kind is a branch in `arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from compressor.errors import RungError
from compressor.records import Array, Outputs


def outputs(named: Iterable[tuple[str, Any]]) -> Outputs:
    """Give the arrays of all outputs of a model by their names.

    Raises:
        RungError: Two have the same name, or one is of a kind that nothing here compares.
    """
    found: dict[str, Array] = {}
    for output, value in named:
        for name, array in arrays(output, value):
            if name in found:
                raise RungError(
                    f"two outputs are called {name!r}, one of them an element of a sequence; export one of them by "
                    "another name"
                )
            found[name] = array
    return found


def arrays(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """Give the arrays of an output, each with a name; nothing of an optional output that is not there.

    A map, or a sequence of maps with the same keys, is a table `[maps, keys]`, its columns sorted by key; element i of
    another sequence is an output of its own, `name[i]`.

    Raises:
        RungError: It is something else, such as a sparse tensor, or its maps differ in their keys.
    """
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, Mapping):
        yield name, _table(name, [value])
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        yield name, _table(name, value)
    elif isinstance(value, list):
        for at, element in enumerate(value):
            yield from arrays(f"{name}[{at}]", element)
    elif value is not None:
        raise RungError(
            f"output {name!r} is a {type(value).__name__}, which nothing here compares; export it as a tensor"
        )


def _table(name: str, maps: Sequence[Mapping[Any, Any]]) -> Array:
    keys = sorted(maps[0])
    if any(sorted(each) != keys for each in maps):
        raise RungError(f"output {name!r}: its maps differ in their keys, expected the same in each")
    return np.array([[each[key] for key in keys] for each in maps])
