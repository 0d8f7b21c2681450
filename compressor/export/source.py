"""What a caller names: a torch program, its weights, and the inputs it is traced with. Read without torch.

Another kind of file that is refused, or another word of the grammar, is added here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compressor import units
from compressor.errors import InputError

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_PROGRAM = ".pt2"
_PICKLES = frozenset({".bin", ".ckpt", ".pt", ".pth", ".safetensors"})
DTYPES = (
    *("float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"),  # as numpy and torch say
)
_INPUT = "NAME=DIMENSIONS, then a type and for whole numbers what they stay below, as in ids=1x16:int64:30522"
_AXIS = "NAME:AXIS=SYMBOL, as in x:0=batch"
BATCH = "batch"


@dataclass(frozen=True)
class Input:
    """An input to trace with. `limit`: what its whole numbers stay below, where the caller knows."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    limit: int | None = None


@dataclass(frozen=True)
class Axis:
    """An axis that stays open under a symbol; axes with the same symbol have the same size."""

    name: str
    axis: int
    symbol: str


@dataclass(frozen=True)
class Source:
    """A torch program: `package.module:factory` or a `.pt2` file. `places`: where modules are looked for besides."""

    model: str
    weights: Path | None = None
    inputs: tuple[Input, ...] = ()
    dynamic: tuple[Axis, ...] = ()
    trust: bool = False
    places: tuple[Path, ...] = ()

    @property
    def is_program(self) -> bool:
        """Whether it is a file of torch.export."""
        return self.model.endswith(_PROGRAM)

    @property
    def name(self) -> str:
        """The name of the model: the factory's, or the file's without its ending."""
        return Path(self.model).stem if self.is_program else re.split("[:.]", self.model)[-1]


def is_torch(model: str) -> bool:
    """Tell whether a MODEL has to be exported.

    Raises:
        InputError: It is a file of weights or a pickle, of which no graph can be made safely.
    """
    if Path(model).suffix in _PICKLES:
        raise InputError(
            f"{model}: holds weights or a pickle, which is never loaded as a model; give the code that builds it and "
            f"the weights beside it: package.module:factory --weights {model} --input x=1x3x224x224"
        )
    return model.endswith(_PROGRAM) or (_FACTORY.fullmatch(model) is not None and not Path(model).exists())


def source(
    model: str, weights: Path | None, flags: tuple[Sequence[str], Sequence[str]] = ((), ()), *, trust: bool = False
) -> Source:
    """Read what a caller typed; `flags` are those of `--input`, then those of `--dynamic`.

    Raises:
        InputError: A flag is none of its kind, names another input than is given, or does not go with a `.pt2`.
    """
    inputs, dynamic = flags
    found = Source(model, weights, tuple(map(_input, inputs)), tuple(map(_axis, dynamic)), trust)
    if found.is_program and (weights or inputs or dynamic):
        raise InputError(f"{model}: holds its own weights and inputs; leave out --weights, --input and --dynamic")
    if trust and not found.is_program:
        raise InputError(
            f"{model}: --trust is for a .pt2; a factory is code that runs, and weights are never unpickled"
        )
    _refuse_twice("--input", [each.name for each in found.inputs])
    _refuse_twice("--dynamic", [f"{each.name}:{each.axis}" for each in found.dynamic])
    shapes = {each.name: each.shape for each in found.inputs}
    for open_ in found.dynamic:
        if open_.axis >= len(shapes.get(open_.name, ())):
            given = ", ".join(f"{name} {units.write_shape(shape)}" for name, shape in shapes.items()) or "none"
            raise InputError(f"--dynamic: no input has {open_.name}:{open_.axis}; --input gives {given}")
    return found


def _input(text: str) -> Input:
    name, separated, rest = text.partition("=")
    shape, dtype, limit, *more = [*rest.split(":"), "", ""]
    dtype = dtype or "float32"
    if not _is_name(name) or not separated or any(more) or not re.fullmatch(r"([1-9]\d*)?", limit):
        raise InputError(f"--input: expected {_INPUT}, found {text!r}")
    if dtype not in DTYPES:
        raise InputError(f"--input {name}: expected one of {', '.join(DTYPES)}, found {dtype!r}")
    try:
        dims = units.shape(shape)
    except ValueError as error:
        raise InputError(f"--input {name}: {error}") from error
    if 0 in dims:
        raise InputError(f"--input {name}: expected sizes from 1 up, found {shape!r}")
    return Input(name, dims, dtype, int(limit) if limit else None)


def _axis(text: str) -> Axis:
    found = re.fullmatch(r"(.+):(\d{1,2})=(.+)", text)
    if not found or not _is_name(found[1]) or not _is_name(found[3]):
        raise InputError(f"--dynamic: expected {_AXIS}, found {text!r}")
    return Axis(found[1], int(found[2]), found[3])


def _is_name(text: str) -> bool:
    return text.isidentifier()


def _refuse_twice(flag: str, names: Sequence[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{flag}: {twice} stands twice")
