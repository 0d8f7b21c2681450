"""What is true of an ONNX file: its record, a summary for people, and the questions other modules ask.

Every function takes a path and loads lazily. Add a question here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import records
from compressor.graph import check, count, files, shapes

if TYPE_CHECKING:
    import onnx_ir as ir

_SAME_VALUES = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_FEW = 0.2  # share of Conv in the weight bytes that a transformer may have (patch embedding)
_HALF = 0.5
_PRODUCTS = ("Attention", "Conv", "Einsum", "Embed", "Gather", "Gemm", "GRU", "LSTM", "MatMul", "RNN")
"""Parts of the names of operators that hold or do nearly all that can become INT8, contributed ones among them."""


@dataclass(frozen=True)
class Summary:
    """What `compress inspect` shows. `macs` is None where the shapes do not settle it."""

    size_bytes: int
    parameters: int
    macs: int | None
    nodes: int
    operators: Mapping[str, int]  # operator: nodes, most frequent first
    opsets: Mapping[str, int]  # domain: version; the standard domain is ai.onnx
    weight_bytes: int
    int8_bytes: int  # of those, what integer kernels could read
    quantized: bool
    random: tuple[str, ...]  # operators that draw random numbers
    training: tuple[str, ...]  # nodes exported in training mode

    @property
    def int8_share(self) -> float:
        """Share of the weights that can become INT8, 0 to 1."""
        return self.int8_bytes / self.weight_bytes if self.weight_bytes else 0.0


def open_model(path: Path, static: records.Shapes | None = None) -> records.Model:
    """Check a model file and give its record, multiply-accumulates counted at the shapes given.

    Raises:
        InputError: The file is no usable ONNX model; the sentence says why.
        MachineError: The file may not be read.
    """
    model = files.load(path)
    check.refuse_invalid(path, model)
    check.refuse_dangling(path, model)
    check.refuse_unset(path, model)
    check.refuse_cyclic(path, model)
    check.refuse_damaged(path, model)
    check.refuse_non_finite(path, model)
    parts = files.paths(path, model)
    return records.Model(
        path=path,
        sha256=files.sha256(parts),
        size_bytes=sum(part.stat().st_size for part in parts),
        parameters=count.parameters(model),
        macs=_macs(model, static),
        nodes=sum(1 for _ in count.nodes(model)),
        opset=_opsets(model).get("ai.onnx", 0),
        inputs=tuple(_tensor(value) for value in model.graph.inputs if value.const_value is None),
        outputs=tuple(_tensor(value) for value in model.graph.outputs),
    )


def at_shapes(model: records.Model, static: records.Shapes) -> records.Model:
    """Give the record of a file already checked with its multiply-accumulates counted at these shapes."""
    return replace(model, macs=_macs(files.load(model.path), static))


def summary(path: Path, static: records.Shapes | None = None) -> Summary:
    """Describe a model file, multiply-accumulates counted at the shapes given.

    Raises:
        InputError: The file is no readable ONNX model.
        MachineError: The file may not be read.
    """
    model = files.load(path)
    weight_bytes, int8_bytes = count.weight_bytes(model)
    return Summary(
        size_bytes=sum(part.stat().st_size for part in files.paths(path, model)),
        parameters=count.parameters(model),
        macs=_macs(model, static),
        nodes=sum(1 for _ in count.nodes(model)),
        operators=count.operators(model),
        opsets=_opsets(model),
        weight_bytes=weight_bytes,
        int8_bytes=int8_bytes,
        quantized=count.is_quantized(model),
        random=tuple(sorted({node.op_type for node in count.nodes(model)} & count.RANDOM)),
        training=tuple(node.name or node.outputs[0].name for node in count.nodes(model) if count.is_training(node)),
    )


def index_limits(path: Path) -> Mapping[str, int]:
    """Give, for each input whose values index constant tables, the rows of the smallest of them."""
    limits: dict[str, int] = {}
    for node in count.nodes(files.load(path)):
        rows = _rows(node)
        name = None if rows is None else _origin(node.inputs[1])
        if rows is not None and name is not None:
            limits[name] = min(rows, limits.get(name, rows))
    return limits


def is_quantized(path: Path) -> bool:
    """Tell whether the file carries quantization already."""
    return count.is_quantized(files.load(path))


def has_products(path: Path) -> bool:
    """Tell whether some operator convolves, multiplies matrices or looks rows up: the work that integers do."""
    operators = {node.op_type for node in count.nodes(files.load(path))}
    return any(product in operator for operator in operators for product in _PRODUCTS)


def looks_like_transformer(path: Path) -> bool:
    """Tell whether attention (a Softmax that is multiplied with values) and matrix products make up the model."""
    model = files.load(path)
    attends = any("Attention" in node.op_type or _weighs(node) for node in count.nodes(model))
    total, _ = count.weight_bytes(model)
    return attends and _conv_bytes(model) <= _FEW * total


def is_mostly_products(path: Path) -> bool:
    """Tell whether most of the weights are of matrix products and tables rather than of convolutions."""
    model = files.load(path)
    total, _ = count.weight_bytes(model)
    return _conv_bytes(model) < _HALF * total


def _macs(model: ir.Model, static: records.Shapes | None) -> int | None:
    model.graph.sort()  # or onnx_ir cannot copy it
    return count.macs(shapes.settled(model, static).graph)


def _opsets(model: ir.Model) -> dict[str, int]:
    return {domain or "ai.onnx": version for domain, version in model.opset_imports.items()}


def _tensor(value: ir.Value) -> records.Tensor:
    dims = None if value.shape is None else tuple(map(shapes.dimension, value.shape))
    return records.Tensor(name=value.name or "", dtype=_dtype(value), shape=dims)


def _dtype(value: ir.Value) -> str:
    import onnx_ir as ir

    if value.type is None:
        return "map"  # see `serial`
    if not isinstance(value.type, ir.TensorType):
        return type(value.type).__name__.removesuffix("Type").lower()  # sequence, optional
    return "str" if value.type.dtype == ir.DataType.STRING else value.type.dtype.numpy().name


def _rows(gather: ir.Node) -> int | None:
    import onnx_ir as ir

    if gather.op_type != "Gather":
        return None
    table = gather.inputs[0]
    producer = table.producer()
    if producer is not None and producer.op_type == "DequantizeLinear":
        table = producer.inputs[0]
    tensor = ir.convenience.get_const_tensor(table)
    return None if tensor is None else int(tensor.shape[gather.attributes.get_int("axis", 0)])


def _origin(value: ir.Value) -> str | None:
    while (node := value.producer()) is not None:
        if node.op_type not in _SAME_VALUES:
            return None
        value = node.inputs[0]
    return value.name if value.is_graph_input() else None


def _weighs(node: ir.Node) -> bool:
    if node.op_type != "Softmax":
        return False
    readers = list(node.outputs[0].consumers())
    return any(reader.op_type == "MatMul" for reader in readers + [r for s in readers for r in _passed_on(s)])


def _passed_on(node: ir.Node) -> Iterator[ir.Node]:
    if node.op_type in {"Cast", "Dropout", "Mul", "QuantizeLinear", "Where"}:
        yield from node.outputs[0].consumers()


def _conv_bytes(model: ir.Model) -> int:
    read = ((t, {use.node.op_type for use in value.uses()}) for value, t in count.constants(model))
    return sum(tensor.nbytes for tensor, ops in read if ops & {"Conv", "ConvTranspose"})
