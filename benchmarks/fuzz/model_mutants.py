"""Damaged ONNX files: bytes, fields, graphs, external data.

Each function writes a mutant into a folder and gives its path; add a way to damage one to the tuple of its function.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from bases import external, some_model
from google.protobuf.message import Message
from onnx import TensorProto, helper

NAMES = ("", "a\nb", "\x1b[31mred\x1b[0m", "n" * 300, "[red]", "x|y`z", "a\u202eb", "../../x")
NAMES += ("\u00e9\u4e2d", "'; x", "a\tb")
"""Names that no model should have, and some do."""
_DIMS = (0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))
_SOME = 4


def noise(rng: random.Random, folder: Path) -> Path:
    """Flip bits, cut, repeat, or splice bytes of another model in."""
    data = bytearray(some_model(rng).SerializeToString())
    other = some_model(rng).SerializeToString()
    for _ in range(rng.randrange(1, _SOME)):
        at, n = rng.randrange(len(data)), rng.randrange(1, 64)
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + n] = rng.randbytes(n)
            case 2:
                del data[at : at + n]
            case 3:
                data[at:at] = data[at : at + n]
            case 4:
                start = rng.randrange(len(other))
                data[at:at] = other[start : start + n]
            case 5:
                del data[max(at, 1) :]
        data = data or bytearray(b"\0")
    return _write(bytes(data), folder)


def fields(rng: random.Random, folder: Path) -> Path:
    """Change fields anywhere in the message: drop, repeat, set to odd values, exchange between messages."""
    proto = some_model(rng)
    for _ in range(rng.randrange(1, _SOME)):
        messages = list(_messages(proto))
        _change(rng, rng.choice(messages), messages)
    return _write(proto.SerializeToString(), folder)


def graphs(rng: random.Random, folder: Path) -> Path:
    """Change what a model means: its wiring, names, tensors, types, attributes, opsets."""
    proto = some_model(rng)
    for _ in range(rng.randrange(1, _SOME)):
        if proto.graph.node:
            rng.choice(_GRAPH)(rng, proto)
    return _write(proto.SerializeToString(), folder)


def places(rng: random.Random, folder: Path) -> Path:
    """Let external data lie where it must not, or in part nowhere."""
    home = folder / "home"
    home.mkdir()
    proto = some_model(rng)
    data = external(proto, "model.data")
    (folder / "outside.data").write_bytes(data * 2)
    (home / "model.data").write_bytes(data)
    tensors = [tensor for tensor in proto.graph.initializer if tensor.external_data]
    for tensor in tensors[: rng.randrange(1, 3)]:
        rng.choice(_PLACE)(rng, home, tensor)
    return _write(proto.SerializeToString(), home)


def _write(data: bytes, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for one in value if field.is_repeated else [value]:
                yield from _messages(one)


def _change(rng: random.Random, message: Message, messages: list[Message]) -> None:
    same = [other for other in messages if other.DESCRIPTOR is message.DESCRIPTOR and other is not message]
    if same and rng.random() < 0.15:  # noqa: PLR2004
        apart = type(message)()
        apart.CopyFrom(rng.choice(same))  # which may hold the message, or lie in it
        message.CopyFrom(apart)
        return
    field = rng.choice(message.DESCRIPTOR.fields)
    repeated = field.is_repeated
    if rng.random() < 0.25 or (field.message_type and repeated and not len(getattr(message, field.name))):  # noqa: PLR2004
        message.ClearField(field.name)
    elif field.message_type:
        _nested(rng, message, field.name, repeated=repeated)
    elif repeated:
        getattr(message, field.name).extend([_value(rng, field)] * rng.randrange(1, 4))
    else:
        setattr(message, field.name, _value(rng, field))


def _nested(rng: random.Random, message: Message, name: str, *, repeated: bool) -> None:
    value = getattr(message, name)
    if not repeated:
        value.SetInParent()
        return
    match rng.randrange(3):
        case 0:
            del value[rng.randrange(len(value))]
        case 1:
            value.add().CopyFrom(rng.choice(value))
        case 2:
            value.add()


def _value(rng: random.Random, field: object) -> object:
    kind = field.cpp_type  # type: ignore[attr-defined]
    if field.enum_type:  # type: ignore[attr-defined]
        return rng.choice(list(field.enum_type.values_by_number))  # type: ignore[attr-defined]
    if kind == 9:  # noqa: PLR2004 - CPPTYPE_STRING, which bytes are too
        text = rng.choice(NAMES)
        return text.encode() if field.type == 12 else text  # type: ignore[attr-defined] # noqa: PLR2004 - TYPE_BYTES
    if kind in {5, 6}:
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e38, 3.5))
    small = kind in {1, 3}
    number = rng.choice((*_DIMS[:6], 13, 17, 99) if small else (*_DIMS, 13, 17, 99))
    return abs(number) if kind in {3, 4} else number


def _rewire(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Let a node read another value: of anywhere, so that cycles come about, or of nowhere."""
    node = rng.choice(proto.graph.node)
    names = [name for other in proto.graph.node for name in (*other.input, *other.output)]
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, *node.output, rng.choice(NAMES)])


def _rename(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Give a value an odd name everywhere."""
    names = [name for node in proto.graph.node for name in (*node.input, *node.output) if name]
    old, new = rng.choice(names), rng.choice(NAMES)
    for node in proto.graph.node:
        for side in (node.input, node.output):
            side[:] = [new if name == old else name for name in side]
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.name = new if value.name == old else value.name


def _rename_node(rng: random.Random, proto: onnx.ModelProto) -> None:
    node = rng.choice(proto.graph.node)
    node.name = rng.choice([*NAMES, proto.graph.node[0].name])


def _twice(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Let something stand twice: a node, a weight, an input, an output."""
    values = rng.choice([proto.graph.node, proto.graph.initializer, proto.graph.input, proto.graph.output])
    if values:
        values.add().CopyFrom(rng.choice(values))


def _drop(rng: random.Random, proto: onnx.ModelProto) -> None:
    values = rng.choice([proto.graph.node, proto.graph.initializer, proto.graph.input, proto.graph.output])
    if values:
        del values[rng.randrange(len(values))]


def _tensor(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Let a weight's dimensions, type and bytes disagree."""
    tensors = proto.graph.initializer
    if not tensors:
        return
    one, other = rng.choice(tensors), rng.choice(tensors)
    match rng.randrange(6):
        case 0:
            one.dims[:] = other.dims
        case 1 if one.dims:
            one.dims[rng.randrange(len(one.dims))] = rng.choice(_DIMS)
        case 2:
            one.data_type = rng.choice([*TensorProto.DataType.values(), 99])
        case 3:
            one.raw_data = one.raw_data[: rng.randrange(len(one.raw_data) + 1)]
        case 4:
            one.raw_data += rng.randbytes(rng.randrange(1, 9))
        case _:
            one.raw_data, other.raw_data = other.raw_data, one.raw_data


def _typed(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Say another type or shape of an input or output."""
    value = rng.choice([*proto.graph.input, *proto.graph.output, *proto.graph.value_info] or [onnx.ValueInfoProto()])
    tensor = value.type.tensor_type
    match rng.randrange(6):
        case 0:
            tensor.elem_type = rng.choice(TensorProto.DataType.values())
        case 1 if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_value = rng.choice(_DIMS)
        case 2 if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_param = rng.choice(NAMES)
        case 3:
            tensor.ClearField("shape")
        case 4:
            value.type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])))
        case _:
            tensor.shape.dim.add().dim_value = rng.choice(_DIMS)


def _attribute(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Give an attribute another type or value, drop it, or add one."""
    node = rng.choice(proto.graph.node)
    values = ([1, 1], -5, 2**40, 1.5, "text", [0], [-1, 2**40], helper.make_tensor("t", 1, [2], [1, 2]), ["a", "b"])
    name = rng.choice(["axis", "axes", "pads", "to", "kernel_shape", "group", "perm", "value", "strides", "body"])
    if node.attribute:
        kept = rng.choice(node.attribute)
        name = rng.choice([name, kept.name])
        node.attribute.remove(kept)
    if rng.random() < 0.8:  # noqa: PLR2004
        node.attribute.append(helper.make_attribute(name, rng.choice(values)))


def _operator(rng: random.Random, proto: onnx.ModelProto) -> None:
    node = rng.choice(proto.graph.node)
    node.op_type = rng.choice(["Conv", "MatMul", "Relu", "NoSuch", "", "Loop", "If", "LSTM", "Reshape", "Constant"])
    node.domain = rng.choice(["", "", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "nobody"])


def _versions(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Say another opset or version, or none, or say it twice."""
    match rng.randrange(4):
        case 2 if not proto.opset_import:
            pass
        case 0:
            proto.ir_version = rng.choice([0, 1, 3, 7, 13, 99, -1])
        case 1:
            proto.opset_import.append(helper.make_opsetid("", rng.randrange(30)))
        case 2:
            rng.choice(proto.opset_import).version = rng.choice([0, 1, 5, 7, 9, 13, 21, 25, 99, -3, 2**40])
        case 3:
            del proto.opset_import[:]


def _told(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Add what describes the model: metadata with odd keys, long texts."""
    entry = proto.metadata_props.add()
    entry.key, entry.value = rng.choice(NAMES), rng.choice(NAMES)
    proto.doc_string = rng.choice(NAMES) * rng.choice([1, 1000])
    proto.graph.name = rng.choice(NAMES)


def _located(key: str, *values: object) -> Callable[[random.Random, Path, TensorProto], None]:
    def damage(rng: random.Random, _: Path, tensor: TensorProto) -> None:
        entry = next((one for one in tensor.external_data if one.key == key), None) or tensor.external_data.add(key=key)
        entry.value = str(rng.choice(values))

    return damage


def _linked(rng: random.Random, home: Path, _: TensorProto) -> None:
    """Make a link of the file: to a file outside, a hard one, a loop, a folder, a device."""
    file, outside = home / "model.data", home.parent / "outside.data"
    if file.is_dir() and not file.is_symlink():
        return
    file.unlink(missing_ok=True)
    match rng.randrange(6):
        case 0:
            file.symlink_to(outside)
        case 1:
            file.hardlink_to(outside)
        case 2:
            file.symlink_to(file)
        case 3:
            file.mkdir(exist_ok=True)
        case 4:
            file.symlink_to("/dev/zero")
        case 5:
            os.mkfifo(file)


def _linked_folder(_rng: random.Random, home: Path, tensor: TensorProto) -> None:
    """Let the file lie in a folder that is a link out of the model's."""
    if not (home / "sub").exists():
        (home / "sub").symlink_to("..", target_is_directory=True)
    next(one for one in tensor.external_data if one.key == "location").value = "sub/outside.data"


def _cut(rng: random.Random, home: Path, _: TensorProto) -> None:
    file = home / "model.data"
    if file.is_file():
        data = file.read_bytes()
        file.write_bytes(data[: rng.randrange(len(data) + 1)])


_GRAPH = (_rewire, _rename, _rename_node, _twice, _drop, _tensor, _typed, _attribute, _operator, _versions, _told)
_PLACE = (
    _located("location", "../outside.data", "../../etc/passwd", "/etc/passwd", "", ".", "missing", *NAMES),
    _located("location", "./model.data", "sub/../model.data", "MODEL.DATA", "C:\\x", "\0", "a\0b", "x" * 5000),
    _located("offset", -1, 2**62, 2**63, 2**70, "x", "", 1, 4, "1e3", " 0", "0x0"),
    _located("length", -1, 0, 2**62, 2**63, 2**70, "x", "", 1),
    _linked,
    _linked_folder,
    _cut,
)
