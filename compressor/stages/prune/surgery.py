"""Removing units from a copy of a graph: every slice of weights, and every number that counts their channels.

What an operator counts channels by is a line in `_EDITS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from compressor.records import Array
from compressor.stages.prune import layout, sizes
from compressor.stages.prune.atoms import size
from compressor.stages.prune.constants import constant
from compressor.stages.prune.groups import Coupled

if TYPE_CHECKING:
    import onnx_ir as ir


def shrunk(coupled: Coupled, removed: frozenset[int]) -> ir.Model:
    """Give a copy of the model without these units; of each group one at least must be left.

    What it computes is what the model would with every slice of weights of the removed units set to 0.
    """
    model = coupled.model.clone()
    cut = Cut(coupled, removed)
    old_nodes = list(coupled.model.graph)  # the copy's nodes have lost their sizes when they are edited
    for old, new in zip(old_nodes, list(model.graph), strict=True):
        edit = _EDITS.get(old.op_type)
        if edit is not None and old.domain in {"", "ai.onnx"}:
            edit(cut, old, new)
    _shrink(cut, model.graph)
    _drop_unread(model.graph)
    for output, shape in zip(model.graph.outputs, coupled.declared, strict=True):
        output.shape = shape and shape.copy()
    return model


def zeroed(coupled: Coupled, removed: frozenset[int]) -> ir.Model:
    """Give a copy of the model in which every slice of floating-point weights of these units is 0.

    Constants that divide stay: what reads the units is 0 as well, and a quotient of zeros is no number.
    """
    import onnx_ir as ir

    model, cut = coupled.model.clone(), Cut(coupled, removed)
    for value in model.graph.initializers.values():
        is_float = value.const_value.dtype.is_floating_point()
        array = constant(value) if cut.changes(value) and is_float and not _divides(value) else None
        if array is not None:
            array = array.copy()
            for axis in range(array.ndim):
                if (kept := cut.kept(value, axis)) is not None:
                    np.moveaxis(array, axis, 0)[~kept] = 0
            value.const_value = ir.tensor(array, dtype=value.const_value.dtype, name=value.name)
    return model


def _divides(value: ir.Value) -> bool:
    uses = [(use.node.op_type, use.idx) for use in value.uses()]
    return any((kind == "Div" and at == 1) or kind in {"Log", "Pow", "Reciprocal"} for kind, at in uses)


class Cut:
    """What is left of each axis."""

    def __init__(self, coupled: Coupled, removed: frozenset[int]) -> None:
        """Take these units away."""
        gone = np.zeros(1 + sum(len(group.units) for group in coupled.groups), bool)  # the last is STAYS
        gone[list(removed)] = True
        self._kept = {key: ~gone[units] for key, units in coupled.units.items() if gone[units].any()}

    def kept(self, value: ir.Value, axis: int) -> Array | None:
        """Tell of each index whether it is kept; None where all of them are."""
        return None if value.shape is None else self._kept.get((value.name, axis % len(value.shape.dims)))

    def shrinks(self, name: str, axis: int) -> bool:
        """Tell whether an axis of a value loses indices."""
        return (name, axis) in self._kept

    def size(self, value: ir.Value, axis: int) -> int | None:
        """Give the size of an axis from now on; None where it is not known."""
        kept, before = self.kept(value, axis), size(value, axis)
        return before if kept is None or before is None else int(kept.sum())

    def changes(self, value: ir.Value) -> bool:
        """Tell whether a value shrinks."""
        return value.shape is not None and any(self.kept(value, i) is not None for i in range(len(value.shape.dims)))


def _shrink(cut: Cut, graph: ir.Graph) -> None:
    """Take the slices out of initializers, and write down the shapes of all values."""
    import onnx_ir as ir

    for value in graph.initializers.values():
        array = constant(value) if cut.changes(value) else None
        if array is not None:
            for axis in range(array.ndim):
                kept = cut.kept(value, axis)
                array = array if kept is None else np.compress(kept, array, axis)
            value.const_value = ir.tensor(np.ascontiguousarray(array), dtype=value.const_value.dtype, name=value.name)
    for value in (*graph.initializers.values(), *(output for node in graph for output in node.outputs)):
        if cut.changes(value):
            value.shape = ir.Shape(
                [cut.size(value, i) if isinstance(dim, int) else dim for i, dim in enumerate(value.shape)]
            )


def _drop_unread(graph: ir.Graph) -> None:
    unread = [n for n, v in graph.initializers.items() if not v.uses() and not v.is_graph_output()]
    for name in unread:
        del graph.initializers[name]


def _set(node: ir.Node, index: int, array: Array) -> None:
    """Give a node a constant of its own for an input, under the old name where nobody else reads that."""
    import onnx_ir as ir

    old = node.inputs[index] if index < len(node.inputs) else None
    if old is not None and old.is_initializer() and len(old.uses()) == 1 and not old.is_graph_output():
        old.const_value = ir.tensor(array, name=old.name)
        old.shape = ir.Shape(array.shape)
        return
    name = free_name(node.graph, f"{node.name}_{index}" if old is None or not old.name else old.name)
    value = ir.val(name, const_value=ir.tensor(array, name=name))
    node.graph.register_initializer(value)
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)


def free_name(graph: ir.Graph, wanted: str) -> str:
    """Give a name like the one that is wanted that no value of a graph has."""
    taken = {value.name for node in graph.all_nodes() for value in node.outputs}
    taken |= set(graph.initializers) | {value.name for value in graph.inputs}
    return next(name for i in count(1) if (name := f"{wanted}_{i}") not in taken)


def _groups(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    """Set the groups of a convolution to the channels on the side that its kernel counts within a group."""
    transposed = old.op_type == "ConvTranspose"
    side, weights = old.outputs[0] if transposed else old.inputs[0], old.inputs[1]
    if old.attributes.get_int("group", 1) > 1 and (cut.changes(side) or cut.changes(weights)):
        channels, within = cut.size(side, 1), cut.size(weights, 1)
        if channels and within:
            _integer(new, "group", channels // within)


def _normalised_groups(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    kept = cut.kept(old.inputs[0], 1)
    if kept is not None:
        groups = old.attributes.get_int("num_groups", 1)
        _integer(new, "num_groups", groups * int(kept.sum()) // len(kept))


def _hidden(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    if (kept := cut.kept(old.inputs[2], 2)) is not None:
        _integer(new, "hidden_size", int(kept.sum()))


def _integer(node: ir.Node, name: str, number: int) -> None:
    import onnx_ir as ir

    node.attributes.add(ir.AttrInt64(name, number))


def _split(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    axis = old.attributes.get_int("axis", 0)
    if cut.kept(old.inputs[0], axis) is not None:
        new.attributes.pop("num_outputs", None)
        _set(new, 1, np.array([cut.size(output, axis) for output in old.outputs], np.int64))


def _squeeze(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    """Name the axes: one that shrinks to size 1 must not go too. Where sizes are open nothing shrinks."""
    x = old.inputs[0]
    if cut.changes(x) and not any(old.inputs[1:]):
        _set(new, 1, np.array([axis for axis in range(len(x.shape.dims)) if size(x, axis) == 1], np.int64))


def _slice(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    ranks = len(old.inputs[0].shape.dims)
    found = layout.bounds(old, ranks) or ()
    kept = [cut.kept(old.inputs[0], axis) for axis, *_ in found]
    if all(k is None for k in kept):
        return
    ranges = [
        (start, end) if k is None else (int(k[:first].sum()), int(k[: max(first, last)].sum()))
        for k, (_, start, end, _) in zip(kept, found, strict=True)
        for first, last, _ in [slice(start, end).indices(0 if k is None else len(k))]
    ]
    for index, numbers in enumerate(zip(*ranges, strict=True), 1):
        _set(new, index, np.array(numbers, old.inputs[index].dtype.numpy()))


def _pad(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    x, y = old.inputs[0], old.outputs[0]
    found = layout.padding(old, len(x.shape.dims)) or ()
    if all(cut.kept(y, axis) is None and cut.kept(x, axis) is None for axis, *_ in found):
        return
    pads = [(_before(cut, (x, y), axis, before), _behind(cut, (x, y), axis, behind)) for axis, before, behind in found]
    _set(new, 1, np.array([pair[0] for pair in pads] + [pair[1] for pair in pads], np.int64))


def _before(cut: Cut, sides: tuple[ir.Value, ir.Value], axis: int, pad: int) -> int:
    """Count what is left of padding, or of what negative padding cuts off, at the start."""
    kept = cut.kept(sides[pad > 0], axis)
    return pad if kept is None else int(np.sign(pad)) * int(kept[: abs(pad)].sum())


def _behind(cut: Cut, sides: tuple[ir.Value, ir.Value], axis: int, pad: int) -> int:
    kept = cut.kept(sides[pad > 0], axis)
    return pad if kept is None else int(np.sign(pad)) * int(kept[len(kept) - abs(pad) :].sum())


def _gather(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    """Count the indices that are left by what is left of what they pick from."""
    axis = old.attributes.get_int("axis", 0)
    kept, indices = cut.kept(old.inputs[0], axis), constant(old.inputs[1])
    if kept is not None and indices is not None:
        left = np.asarray(indices)[kept[indices]]
        _set(new, 1, (np.cumsum(kept) - 1)[left].astype(indices.dtype))


def _shape(cut: Cut, old: ir.Node, new: ir.Node) -> None:
    """Write the sizes that are known into the shape that a node is given; those found at run time pass on."""
    index, y = sizes.SHAPED_BY[old.op_type], old.outputs[0]
    given = old.inputs[index] if index < len(old.inputs) else None
    if given is None or y.shape is None or old.attributes.get_ints("axes", None) is not None:
        return
    target = constant(given)
    moved = cut.changes(y) or (index > 0 and cut.changes(old.inputs[0]))
    if target is None and (moved or _depends(cut, given)):
        _set_known(cut, y, new, index)
    elif target is not None and moved:
        _set(new, index, _target(cut, old, target))


def _target(cut: Cut, old: ir.Node, target: Array) -> Array:
    y, x = old.outputs[0], old.inputs[0]
    offset = len(y.shape.dims) - len(target)
    numbers = target.copy()
    for i, number in enumerate(target.tolist()):
        wanted = cut.size(y, i + offset)
        copied = number == 0 and old.op_type == "Reshape"
        if wanted is None or number == -1 or (number == 1 and old.op_type == "Expand"):
            continue
        if not copied or cut.size(x, i) != wanted:
            numbers[i] = wanted
    return numbers


def _set_known(cut: Cut, y: ir.Value, node: ir.Node, index: int) -> None:
    """Correct a shape computed at run time before a node reads it: sizes that are known come from a constant.

    A size in which one of unknown size is merged with others shrinks in proportion to these.
    """
    given = node.inputs[index]
    axes = range(len(y.shape.dims))[-given.shape[0] :]
    known = [cut.size(y, axis) for axis in axes]
    shares = [_share(cut, y, axis) for axis in axes]
    if any(before != after for before, after in shares):
        divided = _insert(node, "Div", given, np.array([before for before, _ in shares], np.int64))
        scaled = _insert(node, "Mul", divided, np.array([after for _, after in shares], np.int64))
        left_over = _insert(node, "Less", given, np.array([0], np.int64))  # -1 is what remains, and stays
        given = _insert(node, "Where", left_over, given, scaled)
    numbers = np.array([number or 0 for number in known], np.int64)
    if any(number is not None for number in known):
        given = _insert(node, "Where", np.array([number is not None for number in known]), numbers, given)
    node.replace_input_with(index, given)


def _share(cut: Cut, y: ir.Value, axis: int) -> tuple[int, int]:
    """Give how many indices of known axes an axis of unknown size has merged in it, before and after."""
    kept = cut.kept(y, axis)
    return (1, 1) if kept is None or size(y, axis) is not None else (len(kept), int(kept.sum()))


def _insert(before: ir.Node, operator: str, *operands: ir.Value | Array) -> ir.Value:
    """Put a node on integer vectors before another, and give its output, as long as the longest operand."""
    import onnx_ir as ir

    graph, values = before.graph, []
    for operand in operands:
        value = operand
        if not isinstance(operand, ir.Value):
            name = free_name(graph, f"{before.name}_{operator}")
            value = ir.val(name, const_value=ir.tensor(operand, name=name))
            graph.register_initializer(value)
        values.append(value)
    name = free_name(graph, f"{before.name}_{operator}")
    node = ir.node(operator, values, name=name)
    output: ir.Value = node.outputs[0]
    dtype = ir.DataType.BOOL if operator == "Less" else ir.DataType.INT64
    output.name, output.shape, output.dtype = name, ir.Shape([max(value.shape[0] for value in values)]), dtype
    graph.insert_before(before, node)
    return output


def _depends(cut: Cut, value: ir.Value) -> bool:
    """Tell whether a number is computed from the size of an axis that shrinks."""
    seen: set[ir.Node] = set()
    pending = [value.producer()]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.op_type == "Shape" and cut.changes(node.inputs[0]):
            return True
        pending += [v.producer() for v in node.inputs if v is not None]
    return False


_EDITS: Mapping[str, Callable[[Cut, ir.Node, ir.Node], None]] = {
    "Conv": _groups,
    "ConvTranspose": _groups,
    "GRU": _hidden,
    "Gather": _gather,
    "GroupNormalization": _normalised_groups,
    "LSTM": _hidden,
    "Pad": _pad,
    "RNN": _hidden,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    **dict.fromkeys(sizes.SHAPED_BY, _shape),
}
