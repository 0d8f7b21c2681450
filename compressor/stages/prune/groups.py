"""Which channels of a graph go together: units that can be removed, in groups, and what cannot be removed and why.

`rules` says what operators do to indices, `atoms` puts that together. What is asked of a group is a field of `Group`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compressor.graph import shapes
from compressor.records import Array
from compressor.stages.prune.atoms import Atoms
from compressor.stages.prune.regroup import learn
from compressor.stages.prune.rules import follow

if TYPE_CHECKING:
    import onnx_ir as ir

STAYS = -1
_REASONS = 3
_FEWEST = 2  # a layer without channels is none


@dataclass(frozen=True)
class Group:
    """Units of which any may be removed as long as one is left; each has as many indices in the same axes.

    `slices`: axes of initializers (name, axis) that hold them, and how many indices a unit has there. `makers`: the
    nodes whose weights make them. `width`: channels of the first of these that a unit has.
    """

    name: str
    units: tuple[int, ...]
    width: int
    makers: tuple[str, ...]
    slices: Mapping[tuple[str, int], int]

    @property
    def channels(self) -> int:
        """Give the channels that the first maker makes of this group."""
        return self.width * len(self.units)


@dataclass(frozen=True)
class Frozen:
    """Channels of a node that stay, and why: the nodes that hold on to them, the nearest in the graph first."""

    name: str
    channels: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Coupled:
    """What can be removed from `model`, a copy of what was analysed with shape arithmetic computed, shapes inferred.

    `units`: for each axis of known size of each value of the graph, by name, the unit that each index belongs to, or
    `STAYS`. `summed`: axes of initializers along which products sum, so that a unit is read there. `declared`: the
    shapes that the file states for its outputs.
    """

    model: ir.Model
    groups: tuple[Group, ...]
    frozen: tuple[Frozen, ...]
    units: Mapping[tuple[str, int], Array]
    summed: frozenset[tuple[str, int]]
    declared: tuple[ir.Shape | None, ...]


def analyse(model: ir.Model) -> Coupled:
    """Find what can be removed from a model in normal form."""
    copy = shapes.settled(model, None)
    atoms = Atoms()
    for node in copy.graph:
        learn(node, atoms)
    for kind, values in (("an input", copy.graph.inputs), ("an output", copy.graph.outputs)):
        for value in values:
            _freeze(atoms, value, f"the model has {kind} {value.name!r}, whose shape stays")
    for node in copy.graph:
        follow(node, atoms)
        for value in captured(node):
            _freeze(atoms, value, f"{node.op_type} {node.name!r} reads it in a graph inside")
    atoms.settle()
    return _found(copy, atoms, tuple(value.shape for value in model.graph.outputs))


def _freeze(atoms: Atoms, value: ir.Value, why: str) -> None:
    for axis in range(0 if value.shape is None else len(value.shape.dims)):
        if (found := atoms.axis(value, axis)) is not None:
            atoms.freeze(found, why)


def captured(node: ir.Node) -> list[ir.Value]:
    """Give the values that graphs inside a node read, their own among them, which no harm comes of."""
    inside = _inside(node)
    for graph in inside:  # grows by the graphs inside these
        inside += [deeper for n in graph for deeper in _inside(n)]
    read = [value for graph in inside for n in graph for value in n.inputs if value is not None]
    return read + [value for graph in inside for value in graph.outputs]


def _inside(node: ir.Node) -> list[ir.Graph]:
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH":
            found.append(attribute.as_graph())
        elif attribute.type.name == "GRAPHS":
            found += attribute.as_graphs()
    return found


def _found(model: ir.Model, atoms: Atoms, declared: tuple[ir.Shape | None, ...]) -> Coupled:
    labels = atoms.labels()
    made = [(node.name, labels[found]) for node, found in atoms.made]
    relevant = np.zeros(atoms.count, bool)
    for _, sets in made:
        relevant[sets] = True
    reasons = _reasons(atoms, labels, relevant)
    relevant[list(reasons)] = False
    axes = {(value.name, axis): labels[found] for (value, axis), found in atoms.axes.items()}
    groups, numbers = _groups(made, _occurrences(axes, relevant), set(model.graph.initializers))
    number = np.full(atoms.count, STAYS)
    number[list(numbers)] = list(numbers.values())
    alone = {int(unit): ("all its channels go together",) for _, sets in made for unit in sets if number[unit] == STAYS}
    summed = frozenset((value.name, axis) for value, axis in atoms.read)
    units = {key: number[found] for key, found in axes.items()}
    return Coupled(model, groups, _frozen(atoms, labels, alone | reasons), units, summed, declared)


def _in_order(labels: Array) -> list[int]:
    """Give each set once, in the order of the indices."""
    return list(dict.fromkeys(labels.tolist()))


def _reasons(atoms: Atoms, labels: Array, relevant: Array) -> dict[int, tuple[str, ...]]:
    """Give for each set of channels that stays why it does."""
    reasons: dict[int, tuple[str, ...]] = {}
    for found, why in atoms.frozen:
        sets = np.unique(labels[found])
        for label in sets[relevant[sets]].tolist():
            told = reasons.get(label, ())
            if len(told) < _REASONS and why not in told:
                reasons[label] = (*told, why)
    return reasons


_Axis = tuple[str, int]


def _occurrences(axes: Mapping[_Axis, Array], relevant: Array) -> dict[int, dict[_Axis, int]]:
    """Give for each set that can be removed how many indices it has in which axes."""
    occurs: dict[int, dict[_Axis, int]] = defaultdict(dict)
    for key, labels in axes.items():
        sets, counts = np.unique(labels, return_counts=True)
        for label, count in zip(sets[relevant[sets]].tolist(), counts[relevant[sets]].tolist(), strict=True):
            occurs[label][key] = count
    return occurs


def _groups(
    made: list[tuple[str, Array]], occurs: Mapping[int, Mapping[_Axis, int]], initializers: set[str]
) -> tuple[tuple[Group, ...], dict[int, int]]:
    """Put sets that occur in the same axes together, and give each set the number of its unit."""
    together: dict[tuple[tuple[_Axis, int], ...], list[int]] = defaultdict(list)
    makers: dict[int, list[str]] = defaultdict(list)
    for name, sets in made:
        for label in _in_order(sets):
            if label in occurs and label not in makers:
                together[tuple(occurs[label].items())].append(label)
            if name not in makers[label]:
                makers[label].append(name)
    groups: list[Group] = []
    numbers: dict[int, int] = {}
    for where, members in together.items():
        slices = {key: count for key, count in where if key[0] in initializers}
        if slices and len(members) >= _FEWEST:
            first = len(numbers)
            numbers |= {label: first + i for i, label in enumerate(members)}
            names = tuple(makers[members[0]])
            units = tuple(range(first, len(numbers)))
            first_made = next(sets for _, sets in made if members[0] in sets)
            groups.append(Group(names[0], units, int((first_made == members[0]).sum()), names, slices))
    return tuple(groups), numbers


def _frozen(atoms: Atoms, labels: Array, reasons: Mapping[int, tuple[str, ...]]) -> tuple[Frozen, ...]:
    """Give the channels that stay, those that go together once."""
    found: dict[bytes, Frozen] = {}
    for node, made in atoms.made:
        staying = labels[made][np.isin(labels[made], list(reasons))]
        if len(staying):
            why = reasons[int(staying[0])]
            found.setdefault(np.unique(staying).tobytes(), Frozen(node.name, len(staying), why))
    return tuple(found.values())
