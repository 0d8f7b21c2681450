"""Which columns of a table serve which input of a model, and which holds the labels.

A new rule about names goes into `matched`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compressor.errors import InputError
from compressor.records import Tensor
from compressor.samples.fit import LABELS

NUMBER, TEXT, OTHER = "numbers", "text", "neither numbers nor text"
_LABELS = (*LABELS, "target", "class")
_INDEX = re.compile(r"|__index_level_\d+__|Unnamed: \d+")
"""What pandas calls the column of row numbers that it writes."""
_IDS = ("id", "index", "idx")
"""What people call a column that numbers or names the rows."""
_NAMED = 5
"""Columns that a message names."""


@dataclass(frozen=True)
class Head:
    """A column of a table: the numpy type of its values, None where cells are text anyway, and how many a row has."""

    name: str
    kind: str
    dtype: str | None = None
    size: int | None = None  # None where a cell is one value, no list


@dataclass(frozen=True)
class Matched:
    """The columns of each input, in order, that of the labels, and what is not obvious about it."""

    inputs: Mapping[str, tuple[Head, ...]]
    label: Head | None
    notes: tuple[str, ...]


def matched(heads: Sequence[Head], tensors: Sequence[Tensor], counts: Callable[[Head], bool]) -> Matched:
    """Tell what each column is for.

    A column named after an input serves it; so do `<input>_0`, `<input>_1` and on. One input that is left takes all
    columns of its kind that are left, in their order; `id`, `index` or `idx` only where the others are too few. Labels
    are a column `label`, `labels`, `target` or `class` in any case, else the only column left over, unless it is called
    `id` or the like or `counts` the rows.

    Raises:
        InputError: An input has no columns, or another number than it takes.
    """
    held = {head.name: head for head in heads if not _INDEX.fullmatch(head.name)}
    known = {name: head for name, head in held.items() if head.kind != OTHER}
    label = _labelled(known.values(), {tensor.name.lower() for tensor in tensors})
    free = {name: head for name, head in held.items() if head is not label}
    inputs = {t.name: own for t in tensors if (own := _named(t, free))}
    for own in inputs.values():
        for head in own:
            free.pop(head.name, None)
    order: tuple[str, ...] = ()
    if len(left := [t for t in tensors if t.name not in inputs]) == 1:
        inputs[left[0].name] = rest = _rest(left[0], free.values())
        _check_count(left[0], rest, free.values(), label)
        order = tuple(_disordered(left[0], rest))
        free = {name: head for name, head in free.items() if head not in rest}
    elif left:
        missing, found = (", ".join(map(repr, each)) for each in ([t.name for t in left], [h.name for h in heads]))
        raise InputError(f"no column for input {missing}, found {found}; name each column after its input")
    notes = list(order)
    if label is None and len(free) == 1 and free.keys() <= known.keys():
        (lone,) = free.values()
        if _is_id(lone) or counts(lone):
            notes.append(f"column {lone.name!r} numbers the rows, and is not used as labels")
        else:
            label = lone
    if label and label.name not in LABELS:
        notes.append(f"column {label.name!r} used as labels")
    return Matched(inputs, label, (*notes, *_told(heads, inputs, label)))


def dims(tensor: Tensor, size: int) -> tuple[int, ...]:
    """Give the shape of the values of a row, `size` of them, as an input takes them.

    Raises:
        InputError: They do not fill it, or the model leaves more than one of its dimensions open.
    """
    wanted = _dims(tensor)
    if wanted is None:
        return (size,)
    known = math.prod(dim for dim in wanted if isinstance(dim, int))
    is_open = sum(not isinstance(dim, int) for dim in wanted)
    if is_open > 1:
        raise InputError(
            f"input {tensor.name!r} leaves {is_open} dimensions of a sample open, which the {size} columns of a table "
            "do not settle; give an .npz file"
        )
    if not known or size % known or (not is_open and size != known):
        raise InputError(f"input {tensor.name!r} takes {known} values a sample, found {size}")
    return tuple(dim if isinstance(dim, int) else size // known for dim in wanted)


def _dims(tensor: Tensor) -> tuple[int | str | None, ...] | None:
    """Give what is known of the axes of a sample; of a vector of fixed length, which has no batch, that one."""
    if tensor.shape is None:
        return None
    is_vector = len(tensor.shape) == 1 and isinstance(tensor.shape[0], int) and tensor.shape[0] > 1
    return tensor.shape if is_vector else tensor.shape[1:]


def _wanted(tensor: Tensor) -> int | None:
    """Give how many values a sample has, None where the model leaves it open."""
    wanted = _dims(tensor)
    if wanted is None or not all(isinstance(dim, int) for dim in wanted):
        return None
    return math.prod(dim for dim in wanted if isinstance(dim, int))


def _named(tensor: Tensor, free: Mapping[str, Head]) -> tuple[Head, ...]:
    """Give the columns that are named after an input and as many as it takes; none if there are no such."""
    wanted = _wanted(tensor)
    head = free.get(tensor.name)
    if head is not None and wanted in {None, head.size or 1}:
        if not _suits(head, tensor):
            raise InputError(f"column {head.name!r} holds {head.kind}, but input {tensor.name!r} is {tensor.dtype}")
        return (head,)
    numbered = _numbered(tensor, free.values())
    run = tuple(numbered[number] for number in sorted(numbered))
    is_run = bool(run) and sorted(numbered) == list(range(min(numbered), min(numbered) + len(run)))
    return run if is_run and min(numbered) in {0, 1} and wanted in {None, len(run)} else ()


def _numbered(tensor: Tensor, free: Collection[Head]) -> dict[int, Head]:
    """Give the columns called like an input with a number behind it: `x_7`, `x.07`, `x7`."""
    pattern = re.compile(rf"{re.escape(tensor.name)}[_.]?(\d+)")
    found = [(int(match[1]), head) for head in free if head.size is None and (match := pattern.fullmatch(head.name))]
    return dict(found) if len(dict(found)) == len(found) else {}


def _labelled(known: Collection[Head], taken: Collection[str]) -> Head | None:
    """Give the column that is called as labels are, unless an input is."""
    by_name = {head.name.lower(): head for head in known}
    return next((by_name[name] for name in _LABELS if name in by_name and name not in taken), None)


def _told(heads: Sequence[Head], inputs: Mapping[str, tuple[Head, ...]], label: Head | None) -> Iterator[str]:
    """Say what serves an input though it may name the rows, and what serves nothing."""
    for name, own in inputs.items():
        yield from (f"column {h.name!r} used for input {name!r}" for h in own if _is_id(h) and h.name != name)
    used = {head for own in inputs.values() for head in own} | {label}
    yield from (f"ignored column {head.name!r}" for head in heads if head not in used)


def _is_id(head: Head) -> bool:
    return head.name.lower() in _IDS


def _rest(tensor: Tensor, free: Collection[Head]) -> tuple[Head, ...]:
    """Give the columns of an input's kind; those that only name the rows where it takes as many."""
    own = tuple(head for head in free if head.kind == _kind(tensor))
    features = tuple(head for head in own if not _is_id(head))
    wanted = _wanted(tensor)
    return own if not features or wanted == sum(head.size or 1 for head in own) else features


def _disordered(tensor: Tensor, rest: Sequence[Head]) -> Iterator[str]:
    """Say so if columns that end in numbers come in another order than these, as after sorting names as text."""
    ends = [match for head in rest if (match := re.fullmatch(r"(.*?)(\d+)", head.name))]
    numbers = [int(end[2]) for end in ends]
    if len(ends) == len(rest) and len({end[1] for end in ends}) == 1 and numbers != sorted(numbers):
        yield f"input {tensor.name!r} takes {_listed(rest)} in the order of the file, not in that of their numbers"


def _kind(tensor: Tensor) -> str:
    return TEXT if tensor.dtype == "str" else NUMBER


def _suits(head: Head, tensor: Tensor) -> bool:
    """Tell whether a column can hold what an input takes; cells of a CSV that look like numbers may be text."""
    return head.kind == _kind(tensor) or (head.dtype is None and (head.kind == NUMBER or tensor.dtype == "bool"))


def _check_count(tensor: Tensor, rest: Sequence[Head], free: Collection[Head], label: Head | None) -> None:
    wanted, found = _wanted(tensor), sum(head.size or 1 for head in rest)
    if found and wanted in {None, found}:
        return
    others = [head for head in free if head not in rest]
    beside = f", beside {_listed(others)} of another kind" if others else ""
    raise InputError(
        f"found {found} columns of {_kind(tensor)} for input {tensor.name!r} ({_listed(rest)}{beside}), expected "
        f"{'some' if wanted is None else wanted}; {_advice(tensor, rest, label)}"
    )


def _advice(tensor: Tensor, rest: Sequence[Head], label: Head | None) -> str:
    wanted, found = _wanted(tensor) or 0, sum(head.size or 1 for head in rest)
    numbered = _numbered(tensor, rest)
    if numbered and (gaps := sorted({*range(1, wanted), *numbered} - {*numbered})):
        return f"number {gaps[0]} is missing"
    if label is None and found == wanted + 1:
        return "call that of the labels 'label'"
    name = tensor.name
    return f"leave out what serves no input, or name those that serve {name}_0, {name}_1, …"


def _listed(heads: Sequence[Head]) -> str:
    names = [repr(head.name) for head in heads]
    few = names if len(names) <= _NAMED else [*names[: _NAMED - 1], "…", names[-1]]
    return ", ".join(few) or "none"
