"""The quantized nodes of a Q/DQ file, each by itself: how good its INT8 is, and whether this machine computes it right.

Another figure of a layer is a field of `Layer`, filled in `_measured`. What a layer does to the whole is in `effects`.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph, runtime
from compressor.records import Feeds, Outputs, Progress, Session, Work
from compressor.runtime.distance import Distance

if TYPE_CHECKING:
    import onnx

_AT_ONCE = 16
"""Layers whose activations are held at the same time, for one feed."""
_QDQ = frozenset({"DequantizeLinear", "QuantizeLinear"})
_FOLDED = frozenset({"Clip", "Relu"})
"""What integer kernels compute along with the node before it."""


@dataclass(frozen=True)
class Layer:
    """A quantized node alone, fed with the float model's activations: SQNR in dB against what the float model gives.

    The error is that of its quantized inputs, weights and output. `exact_db` is with exact arithmetic, `real_db` on
    this machine's integer kernels, None where they were not asked for.
    """

    name: str
    exact_db: float
    real_db: float | None = None


def layers(reference: Path, quantized: Path, feeds: Iterable[Feeds], *, real: bool) -> Work[tuple[Layer, ...]]:
    """Give the nodes of a Q/DQ file that read quantized values, in its order; if `real`, on this machine's kernels too.

    A few feeds are enough; they are iterated several times. A node is looked up in `reference`, the float model, by the
    names of its tensors; one whose tensors have no name there, that has branches, or gives a sequence, is left out. The
    file of a dynamic scheme has no such nodes: its activations are quantized as they come.
    """
    import onnx

    pieces = _pieces(onnx.load(reference, load_external_data=False), onnx.load(quantized))
    found: list[Layer] = []
    for start in range(0, len(pieces), _AT_ONCE):
        yield Progress("look at single layers", start, len(pieces))
        with tempfile.TemporaryDirectory() as folder:
            found += _measured(reference, pieces[start : start + _AT_ONCE], feeds, Path(folder), real=real)
    return tuple(found)


def effects(reference: Path, quantized: Path, feeds: Iterable[Feeds]) -> Work[dict[str, float]]:
    """Give for each layer, by name, the SQNR in dB of the float model's worst output when it alone is in INT8.

    Arithmetic is exact. A layer whose own error is small can have a great effect, and the other way round. The outputs
    for all `feeds` are held.
    """
    import onnx

    pieces = _pieces(onnx.load(reference, load_external_data=False), onnx.load(quantized))
    with closing(_opened(reference, exact=True)) as session:
        wanted = list(map(session, feeds))
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        weightless = _weightless(reference, Path(folder))
        for piece in pieces:
            yield Progress("look at what single layers do to the outputs", len(found), len(pieces))
            path = Path(folder) / "grafted.onnx"
            path.write_bytes(_grafted(weightless, piece).SerializeToString())
            with closing(_opened(path, exact=True)) as session:
                found[piece.name] = _apart(session, feeds, wanted)
    return found


@dataclass(frozen=True)
class _Piece:
    """A node with the Q/DQ pairs around it, as a model that lacks only its declared inputs.

    `inputs`: for each, the tensor of the float model that it is fed with. `wanted`: the one that it is compared to.
    """

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, str]
    wanted: str


def _pieces(original: onnx.ModelProto, model: onnx.ModelProto) -> list[_Piece]:
    cut = _Cut(model, _names(original))
    return [piece for node in model.graph.node if (piece := cut.piece(node))]


class _Cut:
    """Cuts a Q/DQ model into pieces; `known` are the names of the float model's tensors."""

    def __init__(self, model: onnx.ModelProto, known: frozenset[str]) -> None:
        self._imports = {"opset_imports": model.opset_import, "ir_version": model.ir_version}
        self._known = known
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._readers: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in set(node.input):
                self._readers[name].append(node)

    def piece(self, node: onnx.NodeProto) -> _Piece | None:
        """Give the piece around a node; None if it reads nothing quantized, or cannot be cut out."""
        makers = (self._makers.get(name) for name in node.input)
        if node.op_type in _QDQ or not any(m and m.op_type in _QDQ for m in makers):
            return None
        if _has_branches(node) or _gives_lists(node):
            return None
        behind, end = self._behind(node.output[0])
        nodes = self._with_sources([node, *behind])
        made = {name for each in nodes for name in each.output}
        read = {name for each in nodes for name in each.input} - made - {""}
        inputs = {name: self._float_name(name) for name in sorted(read - self._constants.keys())}
        wanted = self._float_name(end)
        if wanted is None or None in inputs.values():
            return None
        model = self._model(nodes, sorted(read & self._constants.keys()), nodes[-1].output[0])
        return _Piece(node.name, model, {k: v for k, v in inputs.items() if v is not None}, wanted)

    def _behind(self, name: str) -> tuple[list[onnx.NodeProto], str]:
        """Give the Q/DQ pair behind a tensor, with a Relu or Clip in front of it, and the name of what it quantizes."""
        folded: list[onnx.NodeProto] = []
        end = name
        while True:
            readers = self._readers[end]
            for pair in self._pairs(end):
                return [*folded, *pair], end
            if len(readers) != 1 or readers[0].op_type not in _FOLDED:
                return [], name
            folded.append(readers[0])
            end = readers[0].output[0]

    def _pairs(self, name: str) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
        """Give each QuantizeLinear that reads a tensor with each DequantizeLinear behind it."""
        for first in self._readers[name]:
            if first.op_type == "QuantizeLinear":
                for second in self._readers[first.output[0]]:
                    if second.op_type == "DequantizeLinear":
                        yield first, second

    def _with_sources(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Give the nodes in order, before each the Q/DQ nodes and constants that it reads."""
        found: dict[str, onnx.NodeProto] = {}
        for node in nodes:
            makers = [self._makers[name] for name in node.input if name in self._makers]
            sources = [maker for maker in makers if maker.op_type in _QDQ | {"Constant"} and maker not in nodes]
            found |= {each.output[0]: each for each in (*self._with_sources(sources), node)}
        return list(found.values())

    def _float_name(self, name: str) -> str | None:
        """Give the float model's name of a tensor: its own, or where that is new, that of the pair behind it."""
        names = (name, *(second.output[0] for _, second in self._pairs(name)))
        return next((each for each in names if each in self._known), None)

    def _model(self, nodes: Iterable[onnx.NodeProto], constants: Iterable[str], output: str) -> onnx.ModelProto:
        import onnx

        body = onnx.helper.make_graph(
            list(nodes),
            "layer",
            [],
            [onnx.ValueInfoProto(name=output)],
            [self._constants[name] for name in constants],
        )
        return onnx.helper.make_model(body, **self._imports)


def _names(model: onnx.ModelProto) -> frozenset[str]:
    return frozenset([*(v.name for v in model.graph.input), *(o for node in model.graph.node for o in node.output)])


def _has_branches(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _gives_lists(node: onnx.NodeProto) -> bool:
    """Tell whether an operator of ONNX gives a sequence, whatever it reads, which is no array to compare."""
    import onnx

    if node.domain or not onnx.defs.has(node.op_type):
        return False
    kinds = onnx.defs.get_schema(node.op_type).outputs[0].types
    return not any(kind.startswith("tensor(") for kind in kinds)


def _measured(
    reference: Path, pieces: Sequence[_Piece], feeds: Iterable[Feeds], folder: Path, *, real: bool
) -> Iterator[Layer]:
    """Give the layers of a few pieces; of the activations only those of one feed around them are held."""
    arithmetics = (True, False) if real else (True,)
    tensors = {name for piece in pieces for name in (*piece.inputs.values(), piece.wanted)}
    sessions: dict[tuple[int, bool], Session] = {}
    distances: defaultdict[tuple[int, bool], Distance] = defaultdict(Distance)
    with ExitStack() as opened:
        activations = opened.enter_context(closing(_tapped(reference, tensors, folder)))
        for feed in feeds:
            values = {**feed, **activations(feed)}
            for i, piece in enumerate(pieces):
                inputs = {name: values[known] for name, known in piece.inputs.items()}
                for key in ((i, exact) for exact in arithmetics):
                    if key not in sessions:
                        session = _opened(_declared(piece, inputs, folder / f"{i}.onnx"), exact=key[1])
                        sessions[key] = opened.enter_context(closing(session))
                    (found,) = sessions[key](inputs).values()
                    distances[key] = distances[key].plus(values[piece.wanted], found)
    for i, piece in enumerate(pieces):
        yield Layer(piece.name, distances[i, True].db, distances[i, False].db if real else None)


def _tapped(reference: Path, names: Iterable[str], folder: Path) -> Session:
    """Open the float model so that it gives these tensors, but for its inputs, as outputs."""
    model = graph.load(reference)
    values = {value.name: value for node in model.graph for value in node.outputs}
    model.graph.outputs[:] = [values[name] for name in sorted(set(names)) if name in values]
    graph.save(model, folder / "tapped.onnx")
    return runtime.load(folder / "tapped.onnx", runtime.options(1, spinning=False))


def _declared(piece: _Piece, inputs: Outputs, path: Path) -> Path:
    """Write a piece with inputs of the types that it is fed with."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(piece.model)
    types = {name: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in inputs.items()}
    model.graph.input.extend(onnx.helper.make_tensor_value_info(name, types[name], None) for name in types)
    path.write_bytes(model.SerializeToString())
    return path


def _weightless(reference: Path, folder: Path) -> onnx.ModelProto:
    """Give the model with its weights in a file of the folder, so that many variants of it are small."""
    import onnx
    import onnx_ir as ir

    ir.save(graph.load(reference), folder / "float.onnx", format="protobuf", external_data="weights")
    return onnx.load(folder / "float.onnx", load_external_data=False)


def _grafted(original: onnx.ModelProto, piece: _Piece) -> onnx.ModelProto:
    """Give the float model in which a piece makes the tensor that it is compared to."""
    import onnx

    model, grafted = onnx.ModelProto(), onnx.ModelProto()
    model.CopyFrom(original)
    grafted.CopyFrom(piece.model)
    names = {**piece.inputs, piece.model.graph.output[0].name: piece.wanted, "": ""}
    for tensor in grafted.graph.initializer:
        tensor.name = f"{tensor.name}/int8"
    for node in grafted.graph.node:
        node.name = f"{node.name}/int8"
        for side in (node.input, node.output):
            side[:] = [names.get(name, f"{name}/int8") for name in side]
    place = next(i for i, node in enumerate(model.graph.node) if piece.wanted in node.output)
    maker = model.graph.node[place]
    maker.output[:] = [f"{name}/float" if name == piece.wanted else name for name in maker.output]
    nodes = [*model.graph.node[: place + 1], *grafted.graph.node, *model.graph.node[place + 1 :]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(grafted.graph.initializer)
    domains = {each.domain for each in model.opset_import}
    model.opset_import.extend(each for each in grafted.opset_import if each.domain not in domains)
    return model


def _apart(session: Session, feeds: Iterable[Feeds], wanted: Iterable[Outputs]) -> float:
    """Give the SQNR of the worst output; one whose shape depends on the data may have another."""
    distances: defaultdict[str, Distance] = defaultdict(Distance)
    for feed, outputs in zip(feeds, wanted, strict=True):
        found = session(feed)
        for name, value in outputs.items():
            distances[name] = distances[name].plus(np.asarray(value), np.asarray(found[name]))
    return min(distance.db for distance in distances.values())


def _opened(path: Path, *, exact: bool) -> Session:
    settings = runtime.options(1, spinning=False)
    return runtime.load(path, runtime.emulated(settings) if exact else settings)
