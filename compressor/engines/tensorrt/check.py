"""What TensorRT would refuse of a model, found without it, and what the parser that is installed says.

`refusals` reads the graph alone, `asked` asks the parser. An operator, attribute or type is an entry of the tables in
`operators`; another rule is a generator of reasons, called in `_reasons`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from compressor.engines.tensorrt import operators, provider
from compressor.engines.tensorrt.record import Provider
from compressor.graph import count, files, shapes

if TYPE_CHECKING:
    import onnx_ir as ir

_QDQ = frozenset({"DequantizeLinear", "QuantizeLinear"})
_CONTROL = frozenset({"If", "Loop", "Scan"})
_ELSE = "export the model without it, or serve it with ONNX Runtime"
_SIGNED = "quantize the float model with the scheme for TensorRT: signed INT8, zero points of 0, no quantized bias"


@dataclass(frozen=True)
class Refusal:
    """One thing that TensorRT would not take as it is, and what to do about it.

    `node`: name of a node, or of its first output where it has none; of the tensor where `operator` is `input` or
    `initializer`. Both are empty where the parser named neither.
    """

    node: str
    operator: str
    reason: str


def refusals(
    path: Path, capabilities: Collection[tuple[int, int]] = (), profiled: Collection[str] = ()
) -> tuple[Refusal, ...]:
    """Give what TensorRT would refuse of a model, as far as the graph alone tells.

    Args:
        path: An ONNX file; of its external data only scales and zero points are read.
        capabilities: Compute capabilities of the devices that it is for, such as (8, 6).
        profiled: Names of the inputs whose open dimensions an optimization profile covers.

    Raises:
        InputError: The file is no readable ONNX model.
        MachineError: The file may not be read.
    """
    loaded = files.load(path)
    loaded.graph.sort()  # files need not be in order, copies must be
    model = shapes.inferred(shapes.inlined(loaded))
    constants = _constants(model)
    return (
        *_opset(model),
        *(Refusal(v.name or "", "input", reason) for v in model.graph.inputs for reason in _input(v, profiled)),
        *_initializers(model),
        *(
            Refusal(_label(node), node.op_type, reason)
            for node in model.graph.all_nodes()
            for reason in _reasons(node, constants, capabilities)
        ),
        *_lacking(model, capabilities),
    )


def asked(path: Path) -> tuple[Refusal, ...] | None:
    """Give what the parser says that is installed; None where none is. It may crash: call it in a child."""
    name = next((name for name in get_args(Provider) if provider.unusable(name) is None), None)
    return None if name is None else _parsed(path, provider.module(name), name)


def _parsed(path: Path, trt: Any, name: str) -> tuple[Refusal, ...]:
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(str(path)):
        return ()
    who = f"the parser of {name} {trt.__version__}"
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    said = [Refusal(e.node_name(), e.node_operator(), f"{who} refuses it: {_first(e.desc())}") for e in errors]
    return tuple(dict.fromkeys(said)) or (Refusal("", "", f"{who} refuses the model and does not say why; {_ELSE}"),)


def _first(text: str) -> str:
    """Give the first line that says more than which node is meant."""
    lines = [line for line in text.splitlines() if line]
    return next((line for line in lines if not line.startswith("Invalid Node")), text)


def _opset(model: ir.Model) -> Iterator[Refusal]:
    version = next((model.opset_imports[d] for d in count.STANDARD_DOMAINS if d in model.opset_imports), None)
    if version is not None and version < operators.OPSET:
        yield Refusal("", "", f"opset {version}, expected {operators.OPSET} or later; export the model for one")


def _input(value: ir.Value, profiled: Collection[str]) -> Iterator[str]:
    import onnx_ir as ir

    if value.const_value is not None:
        return
    if not isinstance(value.type, ir.TensorType):
        yield f"no tensor, and TensorRT takes only tensors; {_ELSE}"
    elif value.dtype is not None and value.dtype.name not in operators.TYPES | operators.QUANTIZED:
        yield f"{value.dtype.name}, a type that no input may have; convert it outside of the model"
    if value.name in profiled:
        return
    if value.shape is None:
        yield "its shape is not stated, not even its rank; export the model with input shapes"
    elif names := [str(dim) for dim in value.shape if not isinstance(shapes.dimension(dim), int)]:
        yield f"no profile covers what is open in it: {', '.join(names)}; give --shape, or --profile when building"


def _initializers(model: ir.Model) -> Iterator[Refusal]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            kind = _kind(value)
            if kind is not None and kind not in operators.TYPES | operators.QUANTIZED:
                reason = f"{kind}, a type that TensorRT has no constants of; store it as another, such as INT32"
                yield Refusal(value.name or "", "initializer", reason)


def _constants(model: ir.Model) -> set[ir.Value]:
    """Give all that is settled when the engine is built: constants, and what is computed from them alone."""
    held = (value for graph in model.graphs() for value in graph.initializers.values())
    known = {value for value in held if value.const_value is not None}
    for node in model.graph.all_nodes():
        if node.op_type not in _CONTROL | count.RANDOM and all(v is None or v in known for v in node.inputs):
            known.update(node.outputs)
    return known


def _reasons(node: ir.Node, constants: set[ir.Value], capabilities: Collection[tuple[int, int]]) -> Iterator[str]:
    if reason := _operator(node):  # nothing else about it matters then
        yield reason
        return
    yield from _settings(node)
    yield from _quantization(node, constants) if node.op_type in _QDQ else _types(node)
    is_single = not {"FLOAT", "DOUBLE"}.isdisjoint(map(_kind, node.inputs[:2]))
    is_product = node.op_type in operators.PRODUCTS and len(node.inputs) > 1
    if is_product and is_single and operators.TURING in capabilities:
        yield "TensorRT-RTX has no FP32 matrix products on Turing (t4); build for it with precision fp16, as auto does"


def _operator(node: ir.Node) -> str | None:
    """Say why there is no such operator; operators of TensorRT's own domain are named `TRT_`."""
    name = node.op_type
    if node.domain not in count.STANDARD_DOMAINS:
        return None if name.startswith("TRT_") else _foreign(node.domain)
    if name in operators.INTEGER:
        return f"TensorRT computes integers only between Q/DQ nodes; {_SIGNED}"
    if name in operators.UNSUPPORTED:
        return f"TensorRT has no such operator; {_ELSE}"
    if name in operators.NOT_IN_RTX:
        return f"TensorRT-RTX has no such operator (TensorRT has); build for it with tensorrt, or {_ELSE}"
    return None


def _foreign(domain: str) -> str:
    """Say what happens to operators of other domains; the parser goes by their names alone."""
    without = "export the model again, without ONNX Runtime's optimizations" if domain == "com.microsoft" else _ELSE
    return f"an operator of {domain}: the parser refuses it, or takes it for ONNX's operator of that name; {without}"


def _settings(node: ir.Node) -> Iterator[str]:
    for name, allowed in operators.ATTRIBUTES.get(node.op_type, {}).items():
        value = node.attributes[name].value if name in node.attributes else ()
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not all(v in allowed for v in values):
            listed = ", ".join(map(str, sorted(allowed, key=str))) or "that it is not given"
            yield f"{name} is {value!s:.40}, TensorRT's parser expects {listed}; {_ELSE}"
    if node.op_type in operators.ONE_OUTPUT and sum(bool(output.name) for output in node.outputs) > 1:
        yield "only its first output is supported; export the model in inference mode, without the others"
    known = (*node.inputs, None, None)[operators.KNOWN.get(node.op_type, -1)]
    if known is not None and known.is_graph_input() and known.const_value is None:
        yield f"its input {known.name!r} must be known when the engine is built; export the model with a constant there"
    mode = (*node.inputs, None, None)[2] if node.op_type == "Dropout" else None
    if mode is not None and ((trains := _stored(mode)) is None or trains.numpy().any()):
        yield "in training mode, or not known not to be; export the model in inference mode"


def _types(node: ir.Node) -> Iterator[str]:
    """Say which types of its inputs and outputs a node other than Q/DQ may not have."""
    read, given = [_kind(value) for value in node.inputs], [_kind(value) for value in node.outputs]
    for kind in sorted({kind for kind in given if kind and kind not in operators.TYPES | operators.QUANTIZED}):
        yield f"gives {kind}, a type that TensorRT does not have; {_ELSE}"
    if read and read[0] in operators.OPERANDS.get(node.op_type, ()):
        yield f"does not take {read[0]}; cast its input to another type, or {_ELSE}"
    if "UINT8" in read + given and node.op_type not in operators.UINT8:
        yield "computes in UINT8, which only inputs and outputs of the model may be; cast it to INT32 first"
    elif node.op_type != "Constant" and any(_kind(v) == "UINT8" and not v.is_graph_output() for v in node.outputs):
        yield "gives UINT8 inside of the model, which only its inputs and outputs may be; cast to INT32 instead"
    held = {_kind(value) for value in node.inputs if _is_stored(value)}
    cast = {*read, *given} - {"INT8"} if node.op_type in {"Cast", "CastLike"} else set()
    if node.domain in count.STANDARD_DOMAINS and (wrong := operators.QUANTIZED & (held | cast)):
        yield f"{min(wrong)}: only Q/DQ nodes may read constants of it, or convert to it; put a DequantizeLinear there"


def _quantization(node: ir.Node, constants: set[ir.Value]) -> Iterator[str]:
    """Say what is wrong with a Q or a DQ node."""
    data, scale, zero = (*node.inputs, None)[:3]
    kind = _kind(node.outputs[0] if node.op_type == "QuantizeLinear" else data)
    if kind is not None and kind not in operators.QUANTIZED:
        yield _wrong_kind(kind)
    # tensorrt-rtx 1.7.1 takes other scales, NVIDIA's documentation does not: operators/docs/Quantize.html of TensorRT
    # ("must be a build-time constant"); activations: the maintainers in NVIDIA/TensorRT#1040
    if scale not in constants:
        yield "its scale must be known when the engine is built; calibrate, and store the scale in the model"
    elif (scales := _stored(scale)) is not None:
        if (scales.numpy().astype("float32") <= 0).any():
            yield "scales must be above 0; calibrate again with samples that are not all the same"
        if scales.size > 1 and data not in constants:
            yield "one scale a channel, which only weights may have; quantize activations with one scale a tensor"
    if zero is not None and zero not in constants:
        yield f"its zero point must be known when the engine is built, and be 0; {_SIGNED}"
    elif zero is not None and (zeros := _stored(zero)) is not None and zeros.numpy().astype("float32").any():
        yield f"its zero point is not 0; {_SIGNED}"


def _wrong_kind(kind: str) -> str:
    if kind == "UINT8":  # ONNX's meaning of a missing zero point, too. The parser only warns about constants of 0
        return f"UINT8, which TensorRT reads as INT8, with other results, or refuses; {_SIGNED}"
    if kind == "INT32":
        return f"a quantized bias (INT32), which TensorRT does not take; {_SIGNED}"
    return f"{kind}, none of the types that TensorRT quantizes to; {_SIGNED}"


def _lacking(model: ir.Model, capabilities: Collection[tuple[int, int]]) -> Iterator[Refusal]:
    """Say of each type that a device does not have where it is met first."""
    for kind, least in operators.LEAST.items():
        lacks = ", ".join(f"{major}.{minor}" for major, minor in sorted(set(capabilities)) if (major, minor) < least)
        nodes = (n for n in model.graph.all_nodes() if any(_kind(v) == kind for v in (*n.inputs, *n.outputs)))
        if lacks and (first := next(nodes, None)):
            reason = f"{kind} needs compute capability {least[0]}.{least[1]}, found {lacks}; build with precision: fp16"
            yield Refusal(_label(first), first.op_type, reason)


def _label(node: ir.Node) -> str:
    return str(node.name or next((value.name for value in node.outputs if value.name), ""))


def _kind(value: ir.Value | None) -> str | None:
    return None if value is None or value.dtype is None else str(value.dtype.name)


def _is_stored(value: ir.Value | None) -> bool:
    if value is None:
        return False
    return value.const_value is not None or (value.producer() is not None and value.producer().op_type == "Constant")


def _stored(value: ir.Value) -> ir.TensorProtocol | None:
    import onnx_ir as ir

    return ir.convenience.get_const_tensor(value)
