"""Reading and writing ONNX files.

What is written is self-contained: one file, or above 1.8 GB the pair `name` and `name.data`. Add another way to write
here.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compressor.errors import InputError, MachineError, root
from compressor.graph import check, count, serial

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_PAIR_ABOVE_BYTES = 1_800_000_000  # protobuf stops at 2 GiB
_KEY_PREFIX = "compressor."


def load(path: Path) -> ir.Model:
    """Read a model; external data stay on disk and are mapped when a tensor is read.

    Raises:
        InputError: The file is no readable ONNX model, or its external data are missing or outside its folder.
        MachineError: The file may not be read.
    """
    import onnx_ir as ir

    proto = check.parse(path)
    try:
        model = serial.deserialised(proto)
    except ir.serde.SerdeError as error:
        raise InputError(f"{path}: not a valid ONNX model, or of a kind not supported: {root(error)}") from error
    for tensor in external_tensors(model):
        tensor.base_dir = path.parent
    check.refuse_external_data(path, external_tensors(model))
    return model


def save(model: ir.Model | onnx.ModelProto, out: Path) -> None:
    """Write a model atomically; the same model gives the same bytes.

    A `ModelProto` must hold its tensors; those of an `ir.Model` may lie in other files, which are copied.

    Raises:
        MachineError: The disk is full or the folder may not be written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            for file in _write(model, Path(folder) / out.name):
                _sync(file)
                file.replace(out.with_name(file.name))
    except OSError as error:
        raise MachineError(
            f"{out}: cannot be written ({error.strerror}); free some space, or choose a folder you may write to"
        ) from error


def with_metadata(path: Path, out: Path, entries: Mapping[str, str]) -> None:
    """Copy a model with entries added to its metadata, each under `compressor.` and its key; no other key changes."""
    model = load(path)
    model.metadata_props.update({f"{_KEY_PREFIX}{key}": entries[key] for key in sorted(entries)})
    save(model, out)


def parts(path: Path) -> tuple[Path, ...]:
    """Give the files that a model on disk consists of, the graph first."""
    return paths(path, load(path))


def paths(path: Path, model: ir.Model) -> tuple[Path, ...]:
    """Give the files a model consists of: the graph first, then its external data sorted by location."""
    locations = sorted({str(tensor.location) for tensor in external_tensors(model)})
    return (path, *(path.parent / location for location in locations))


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Give the tensors that lie in other files: initializers, and attributes of nodes, also of functions."""
    import onnx_ir as ir

    return (tensor for tensor in count.tensors(model) if isinstance(tensor, ir.ExternalTensor))


def sha256(files: tuple[Path, ...]) -> str:
    """Hash the graph's bytes, then the digest of each further file; for a single file it is the file's own sha256."""
    first, *others = files
    with first.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    for other in others:
        digest.update(bytes.fromhex(sha256((other,))))
    return digest.hexdigest()


def _write(model: ir.Model | onnx.ModelProto, path: Path) -> list[Path]:
    import onnx_ir as ir

    if not isinstance(model, ir.Model):
        if model.ByteSize() <= _PAIR_ABOVE_BYTES:
            path.write_bytes(model.SerializeToString(deterministic=True))
            return [path]
        model = serial.deserialised(model)
    model = _with_attributes(model)
    if _tensor_bytes(model) > _PAIR_ABOVE_BYTES:
        data = path.with_name(f"{path.name}.data")
        ir.save(model, path, format="protobuf", external_data=data.name)
        return [data, path]  # the graph last: it is never there without its data
    inline = ir.external_data.load_to_model(model.clone())
    path.write_bytes(serial.serialised(inline).SerializeToString(deterministic=True))
    return [path]


def _with_attributes(model: ir.Model) -> ir.Model:
    """Give a model that holds what attributes of its nodes leave in other files, which onnx_ir 1.1 would not copy."""
    import onnx_ir as ir

    def held(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        return ir.tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)

    initializers = {id(value.const_value) for graph in model.graphs() for value in graph.initializers.values()}
    if all(id(tensor) in initializers for tensor in external_tensors(model)):
        return model
    whole = model.clone()
    for node in count.nodes(whole):
        for name, attribute in list(node.attributes.items()):
            if attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                node.attributes[name] = ir.AttrTensor(name, held(attribute.value))
            elif attribute.type is ir.AttributeType.TENSORS and not attribute.is_ref():
                node.attributes[name] = ir.AttrTensors(name, [held(tensor) for tensor in attribute.value])
    return whole


def _tensor_bytes(model: ir.Model) -> int:
    constants = (value.const_value for graph in model.graphs() for value in graph.initializers.values())
    return sum(tensor.nbytes for tensor in constants if tensor is not None)


def _sync(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())
