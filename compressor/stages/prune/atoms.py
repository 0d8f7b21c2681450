"""Which indices of which axes must stay or go together: a union of atoms, one for each index of each axis.

A rule of `rules` says what one operator does to indices; `Flow` is how it says so. Add a
thing to say as a method there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import RungError
from compressor.records import Array
from compressor.stages.prune.constants import origin

if TYPE_CHECKING:
    import onnx_ir as ir

UNKNOWN_SIZE = "an axis whose size is known at run time only"
_MOST = 2**28
"""Atoms of a graph: a file can state axes of any length."""


@dataclass(frozen=True)
class Option:
    """One way of following a node: pairs of atoms that go together, axes that freeze, axes that tell it from others."""

    ties: tuple[tuple[Array, Array], ...]
    frozen: tuple[Array, ...] = ()
    told_by: frozenset[tuple[ir.Value, int]] = frozenset()


@dataclass(frozen=True)
class Choice:
    """Ways of following a node of which only one can be taken, as both at once would tie everything to everything."""

    node: ir.Node
    options: tuple[Option, ...]


class Atoms:
    """The atoms of a graph, what ties them, what freezes them and why."""

    def __init__(self) -> None:
        """Start with no atom. `merged`: names of sizes known at run time only, and what they are products of."""
        self.axes: dict[tuple[ir.Value, int], Array] = {}
        self.count = 0
        self.frozen: list[tuple[Array, str]] = []
        self.made: list[tuple[ir.Node, Array]] = []
        self.read: list[tuple[ir.Value, int]] = []
        self.heads: list[Array] = []
        self.choices: list[Choice] = []
        self.merged: dict[str, tuple[int | str, ...]] = {}
        self._new: list[tuple[Array, Array]] = []
        self._layouts: dict[int, tuple[int | str, ...]] = {}  # of open axes, by their first atom
        self._labels = np.arange(0)

    def new(self, size: int) -> Array:
        """Give as many atoms that nothing ties yet.

        Raises:
            RungError: They are more than any model has.
        """
        if self.count + size > _MOST:
            raise RungError(f"the axes of the graph have more than {_MOST:,} indices; are its shapes right?")
        self.count += size
        return np.arange(self.count - size, self.count)

    def axis(self, value: ir.Value, axis: int) -> Array | None:
        """Give the atoms of an axis; None where its size is not known.

        An axis in which one of unknown size is merged with others of known size has the atoms of those.
        """
        key = (value, axis % len(value.shape))
        if key not in self.axes:
            dim = value.shape[axis]
            known = [dim] if isinstance(dim, int) else [n for n in self.merged.get(dim.value, ()) if isinstance(n, int)]
            if not known:
                return None
            self.axes[key] = self.new(prod(known))
            if not isinstance(dim, int) and len(known) < len(self.merged[dim.value]):
                self._layouts[int(self.axes[key][0])] = self.merged[dim.value]
        return self.axes[key]

    def is_open(self, atoms: Array) -> bool:
        """Tell whether the axis of these atoms has one of unknown size merged in it, so that it repeats them."""
        return len(atoms) > 0 and int(atoms[0]) in self._layouts

    def alike(self, left: Array, right: Array) -> bool:
        """Tell whether equal places of two axes are equal indices: as many, and merged in the same order, if at all."""
        ends = (self._layouts.get(int(atoms[0])) if len(atoms) else None for atoms in (left, right))
        return len(left) == len(right) and next(ends) == next(ends)

    def tie(self, left: Array, right: Array) -> None:
        """Let the atoms at equal places go together."""
        self._new.append((left, right))

    def freeze(self, atoms: Array, why: str) -> None:
        """Let atoms, and all that go with them, stay."""
        self.frozen.append((atoms, why))

    def labels(self) -> Array:
        """Give each atom the number of the set that it belongs to by now."""
        known = len(self._labels)
        labels = np.concatenate([self._labels, np.arange(known, self.count)])
        if self._new:
            pairs = [labels[np.concatenate(side)] for side in zip(*self._new, strict=True)]
            labels = _components(pairs[0], pairs[1], self.count)[labels]
            self._new.clear()
        self._labels = labels
        return labels

    def settle(self) -> None:
        """Take one option of each choice: first where heads of attention tell which, then in the order of the graph."""
        pending = list(self.choices)
        while pending:
            seen = self._seen()
            best = [_best(choice, seen) for choice in (pending if self.heads else pending[:1])]
            at = next((i for i, (_, heads) in enumerate(best) if heads), 0)
            self.take(pending.pop(at).node, best[at][0])

    def take(self, node: ir.Node, option: Option) -> None:
        """Follow a node by one option."""
        for pair in option.ties:
            self.tie(*pair)
        for atoms in option.frozen:
            self.freeze(atoms, told(node, "follows one of the axes that it merges or splits, not this one"))

    def _seen(self) -> _Seen:
        labels = self.labels()
        frozen = np.zeros(self.count, bool)
        frozen[labels[_joined(atoms for atoms, _ in self.frozen)]] = True
        heads = np.zeros(self.count, bool)
        heads[labels[_joined(self.heads)]] = True
        return _Seen(labels, frozen, {key: bool(heads[labels[atoms]].any()) for key, atoms in self.axes.items()})


@dataclass(frozen=True)
class _Seen:
    """What is known so far: the set of each atom, whether a set is frozen, and which axes hold heads of attention."""

    labels: Array
    frozen: Array
    heads: Mapping[tuple[ir.Value, int], bool]


class Flow:
    """What a rule sees and says of one node. An axis of which it says nothing is frozen."""

    def __init__(self, node: ir.Node, atoms: Atoms) -> None:
        """Take a node and the atoms of its graph."""
        self.node, self.atoms = node, atoms
        self.inputs: Sequence[ir.Value | None] = node.inputs
        self.outputs = [value for value in node.outputs if value.name]  # one that is left out has none
        self.mentioned: set[tuple[ir.Value, int]] = set()

    def __getitem__(self, index: int) -> ir.Value | None:
        """Give an input; None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def x(self) -> ir.Value:
        """The first input."""
        value = self.inputs[0]
        assert value is not None, "visited only where it is there"  # noqa: S101 - for the type
        return value

    @property
    def y(self) -> ir.Value:
        """The first output."""
        return self.outputs[0]

    def axis(self, value: ir.Value, axis: int) -> Array | None:
        """Give the atoms of an axis, which the rule thereby follows; None where its size is not known."""
        self.mentioned.add((value, axis % rank(value)))
        return self.atoms.axis(value, axis)

    def tie(self, left: Array | None, right: Array | None) -> None:
        """Let atoms at equal places go together; where these are not known to be equal indices, both are frozen."""
        if left is not None and right is not None and self.atoms.alike(left, right):
            self.atoms.tie(left, right)
            return
        for atoms in (left, right):
            if atoms is not None:
                self.freeze(atoms, f"meets {UNKNOWN_SIZE}, or one of other indices")

    def freeze(self, atoms: Array, why: str) -> None:
        """Let atoms stay because of this node."""
        self.atoms.freeze(atoms, told(self.node, why))

    def give_up(self, why: str, *axes: Array | None) -> str:
        """Freeze axes that a rule has named and cannot follow after all; give the reason back."""
        for atoms in axes:
            if atoms is not None:
                self.freeze(atoms, why)
        return why

    def same(self, left: ir.Value, right: ir.Value, axes: Iterable[int]) -> None:
        """Tie the same axes of two values."""
        for axis in axes:
            self.tie(self.axis(left, axis), self.axis(right, axis))

    def makes(self, atoms: Array | None) -> None:
        """Note that the weights of this node make these channels."""
        if atoms is not None:
            self.atoms.made.append((self.node, atoms))

    def reads(self, weights: ir.Value | None, axis: int) -> None:
        """Note an axis of weights along which channels are summed."""
        if weights is not None:
            self.atoms.read.append(origin(weights, axis % rank(weights)))

    def close(self, silent: str) -> None:
        """Freeze the axes that the rule did not mention, and say why."""
        for value, axis in _axes(self.node):
            if (value, axis) not in self.mentioned and (atoms := self.atoms.axis(value, axis)) is not None:
                self.freeze(atoms, silent)


def rank(value: ir.Value) -> int:
    """Give the number of axes of a value whose shape is known."""
    return len(value.shape.dims)


def size(value: ir.Value, axis: int) -> int | None:
    """Give the size of an axis; None where it is not known."""
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else None


def told(node: ir.Node, why: str) -> str:
    """Say why, of a node."""
    return f"{node.op_type} {node.name!r} {why}"


def _axes(node: ir.Node) -> Iterator[tuple[ir.Value, int]]:
    values = (v for v in (*node.inputs, *node.outputs) if v is not None and v.shape is not None)
    yield from ((value, axis) for value in values for axis in range(rank(value)))


def _joined(arrays: Iterable[Array]) -> Array:
    return np.concatenate([np.arange(0), *arrays])


def _best(choice: Choice, seen: _Seen) -> tuple[Option, bool]:
    """Give the option that follows heads of attention, else that which leaves most; tell which it was.

    Heads show in an axis that not every option follows.
    """
    left = [_left(option, seen) for option in choice.options]
    viable = [option.told_by for option, units in zip(choice.options, left, strict=True) if units]
    common = viable[0].intersection(*viable) if len(viable) > 1 else frozenset()
    ranks = [
        (bool(units) and any(seen.heads[key] for key in option.told_by - common), units, -i)
        for i, (option, units) in enumerate(zip(choice.options, left, strict=True))
    ]
    best = max(range(len(left)), key=ranks.__getitem__)
    return choice.options[best], ranks[best][0]


def _left(option: Option, seen: _Seen) -> int:
    """Count the sets of atoms that could still be removed if this option were taken."""
    sides = [seen.labels[_joined(pair[i] for pair in option.ties)] for i in (0, 1)]
    stay = seen.labels[_joined(option.frozen)]
    names, flat = np.unique(np.concatenate([*sides, stay]), return_inverse=True)
    half = len(sides[0])
    merged = _components(flat[:half], flat[half : 2 * half], len(names))
    kept = seen.frozen[names]
    kept[flat[2 * half :]] = True
    return int(merged.max() + 1 - len(np.unique(merged[kept])))


def _components(left: Array, right: Array, count: int) -> Array:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(left), bool), (left, right)), shape=(count, count))
    labels: Array = connected_components(edges, directed=False)[1].astype(np.int64)
    return labels
