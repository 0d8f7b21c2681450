"""Refusals: what makes a file no usable ONNX model, each in one sentence.

Add a check as a function that raises InputError, and call it in `files.load` (at every reading) or in
`facts.open_model` (once a run).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import InputError, MachineError, root
from compressor.graph import count

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_EXPORT = "make ONNX of the code and its weights: `compress export package.module:factory --weights FILE --input …`"
_OTHER_FORMATS: Mapping[bytes, str] = {
    b"version https://git-lfs": "a Git LFS pointer and not the model itself; fetch the file with `git lfs pull`",
    b"PK\x03\x04": f"a zip archive, probably a PyTorch file; {_EXPORT}",
    b"\x80": f"a pickle, probably a PyTorch file; {_EXPORT}",
    b"\x89HDF": "an HDF5 file, probably a Keras model; export it to ONNX first (tf2onnx)",
}
# The checker of onnx 1.23 refuses these, ONNX Runtime does not, and normalising repairs each of them but the last.
_TOLERATED = (
    "Field 'shape' of 'type' is required",
    "topologically sorted",
    "in initializer but not in graph input",
    "No Op registered for",  # of which running it says more
)
_ELEMENTS_AT_ONCE = 1 << 22
_CONSTANTS: Mapping[str, str] = {
    "value": "TENSOR",
    "sparse_value": "SPARSE_TENSOR",
    "value_float": "FLOAT",
    "value_floats": "FLOATS",
    "value_int": "INT",
    "value_ints": "INTS",
    "value_string": "STRING",
    "value_strings": "STRINGS",
}
"""The attributes of Constant with their types. Source: ONNX operator schemas, Constant-13."""


def parse(path: Path) -> onnx.ModelProto:
    """Read the graph without its external data.

    Raises:
        InputError: The file is missing, empty, cut off, or something else than ONNX.
        MachineError: The file may not be read.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    _refuse_other_formats(path)
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise InputError(f"{path}: not a readable ONNX model (truncated?); copy or export it again") from error
    if not proto.opset_import or not proto.HasField("graph"):
        raise InputError(f"{path}: not an ONNX model; expected a file as torch.onnx.export or onnx.save writes it")
    if not proto.graph.output:
        raise InputError(f"{path}: the graph has no outputs, so nothing can be measured; export it again with outputs")
    return proto


def refuse_external_data(path: Path, tensors: Iterable[ir.ExternalTensor]) -> None:
    """Return if every external tensor lies whole in a file in the model's folder.

    Raises:
        InputError: A file is missing, too short, or outside the folder.
    """
    home = path.parent.resolve()
    for tensor in tensors:
        if "\0" in str(tensor.location):  # which no file's name holds
            raise InputError(f"{path}: the data of tensor {tensor.name!r} lie in {str(tensor.location)!r}, no file")
        file = path.parent / str(tensor.location)
        if not _resolved(file, path).is_relative_to(home):
            raise InputError(
                f"{path}: the data of tensor {tensor.name!r} lie in {str(tensor.location)!r}, outside the model's "
                "folder; copy that file (no link) beside the model and save the model with a relative location"
            )
        status = _status(file)
        if status and status.st_nlink > 1:  # onnx_ir and onnx refuse to read it
            raise InputError(f"{path}: external data file {file} is a hard link, expected a file of its own; copy it")
        if status is None or not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"{path}: external data file {str(tensor.location)!r} is missing, looked for at {file}; "
                "copy it along with the model"
            )
        end = (tensor.offset or 0) + tensor.nbytes
        if status.st_size < end:
            raise InputError(
                f"{path}: external data file {file} has {status.st_size} bytes, but tensor {tensor.name!r} ends "
                f"at byte {end}; the file is cut off or belongs to another model, copy it again"
            )


def refuse_invalid(path: Path, model: ir.Model) -> None:
    """Return if the ONNX checker finds nothing that would also stop a runtime; `model`: what was read of the file.

    Raises:
        InputError: The file breaks the ONNX specification.
    """
    import onnx
    import onnx_ir as ir

    try:
        onnx.checker.check_model(str(path))
    except UnicodeDecodeError as error:  # of its own words, which quote the file
        raise InputError(f"{path}: not a valid ONNX model: it holds text that is no UTF-8; export it again") from error
    except onnx.checker.ValidationError as error:
        _tolerate(path, error)
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = model.ir_version, dict(model.opset_imports)
        for node in model.graph.all_nodes():  # it stopped at the first that it did not like
            if all(attribute.type.name not in {"GRAPH", "GRAPHS"} for attribute in node.attributes.values()):
                try:
                    onnx.checker.check_node(ir.to_proto(node), context)
                except (onnx.checker.ValidationError, ir.serde.SerdeError) as further:
                    _tolerate(path, further)


def refuse_dangling(path: Path, model: ir.Model) -> None:
    """Return if everything that a node reads, or the model gives, is made; the checker's words for that mean disorder.

    Raises:
        InputError: A node reads a name that nothing gives, or an output is one.
    """
    for node in count.nodes(model):
        for value in node.inputs:
            if value is not None and not _is_given(value):
                raise InputError(
                    f"{path}: node {_name(node)!r} reads {value.name!r}, which nothing gives; export it again"
                )
    for value in (*model.graph.inputs, *model.graph.outputs):
        if not _is_given(value):
            raise InputError(f"{path}: nothing gives the output {value.name!r}; export it again")
        if value.dtype is not None and value.dtype.name == "UNDEFINED":
            raise InputError(f"{path}: {value.name!r} has no type, expected one such as float; export it again")


def refuse_unset(path: Path, model: ir.Model) -> None:
    """Return if attributes have values, which the checker does not see to everywhere.

    Raises:
        InputError: A Constant holds none or several or one of another type than its name says, or an attribute is a
            parameter where there is no function.
    """
    for node in count.nodes(model):
        if node.op_type != "Constant" or node.domain not in count.STANDARD_DOMAINS:
            continue
        if len(node.attributes) != 1:
            raise InputError(f"{path}: Constant node {_name(node)!r} holds {len(node.attributes)} values, expected one")
        (held,) = node.attributes.values()
        if held.type.name != _CONSTANTS.get(held.name):
            raise InputError(
                f"{path}: Constant node {_name(node)!r} holds {held.name!r} as {held.type.name}, expected "
                f"{_CONSTANTS.get(held.name, 'a value')}; export it again"
            )
    for node in model.graph.all_nodes():
        if unset := next((one.name for one in node.attributes.values() if one.is_ref()), None):
            raise InputError(
                f"{path}: attribute {unset!r} of node {_name(node)!r} is the parameter of a function, where there is "
                "none; export it again"
            )


def refuse_cyclic(path: Path, model: ir.Model) -> None:
    """Return if the nodes can be sorted, which they are then: exporters and runtimes do not insist on it.

    Raises:
        InputError: A node reads what follows from itself.
    """
    try:
        model.graph.sort()
    except ValueError as error:
        raise InputError(f"{path}: the graph has a cycle, expected none; export it again") from error


def refuse_damaged(path: Path, model: ir.Model) -> None:
    """Return if the numbers of every tensor in the file are as many as its shape and type say.

    Raises:
        InputError: Those of one are not.
    """
    import onnx_ir as ir

    for tensor in count.tensors(model):
        if any(dim < 0 for dim in tensor.shape.dims if isinstance(dim, int)):
            raise InputError(_damaged(path, tensor, "a negative dimension"))
        try:
            _ = isinstance(tensor, ir.ExternalTensor) or tensor.numpy()
        except MemoryError:
            raise
        except Exception as error:  # onnx_ir raises anything of bytes that do not fit
            raise InputError(_damaged(path, tensor, str(error))) from error


def refuse_non_finite(path: Path, model: ir.Model) -> None:
    """Return if no constant holds NaN and no weight holds an infinity.

    Masks and bounds (inputs of Add, Where, Clip, Pad) may be infinite on purpose.

    Raises:
        InputError: A tensor does; the training probably diverged.
    """
    import onnx_ir as ir

    for value, tensor in count.constants(model):
        if tensor.dtype.name not in count.FLOATS:
            continue
        nans, infinities = _non_finite(tensor.numpy())
        if isinstance(tensor, ir.ExternalTensor):
            tensor.release()  # what was read of a file counts as memory in use
        if nans or (infinities and count.is_weight(value)):
            raise InputError(
                f"{path}: tensor {value.name!r} holds {nans} NaN and {infinities} infinite values of {tensor.size}; "
                "expected finite weights; did the training diverge? Export a good checkpoint"
            )


def _name(node: ir.Node) -> str:
    return node.name or str(node.op_type)


def _is_given(value: ir.Value) -> bool:
    return bool(value.producer() or value.is_graph_input() or value.is_initializer())


def _status(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # it is not there, or no file can have that name
        return None


def _resolved(file: Path, model: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError) as error:  # a RuntimeError up to Python 3.12
        raise InputError(f"{model}: external data file {file} is a link that leads nowhere; copy the file") from error


def _tolerate(path: Path, error: Exception) -> None:
    """Pass over what the checker says of a model that is usable all the same."""
    reason = next(iter(str(root(error)).strip().splitlines()), type(error).__name__)
    if not any(text in reason for text in _TOLERATED):
        raise InputError(f"{path}: not a valid ONNX model: {reason}; export it again") from error


def _damaged(path: Path, tensor: ir.TensorProtocol, reason: str) -> str:
    return (
        f"{path}: the data of tensor {tensor.name!r} do not fit its type and shape, {tensor.dtype} {tensor.shape} "
        f"({reason}); export it again"
    )


def _refuse_other_formats(path: Path) -> None:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path}: no regular file; expected an ONNX model")
    try:
        with path.open("rb") as file:
            head = file.read(32)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; expected an ONNX model") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: a folder; expected an ONNX model, such as {path / 'model.onnx'}") from error
    except OSError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    if not head:
        raise InputError(f"{path}: the file is empty; expected an ONNX model")
    for start, what in _OTHER_FORMATS.items():
        if head.startswith(start):
            raise InputError(f"{path}: {what}")


def _non_finite(array: np.ndarray) -> tuple[int, int]:
    flat = array.reshape(-1)
    parts = np.array_split(flat, flat.size // _ELEMENTS_AT_ONCE + 1)
    nans = sum(int(np.isnan(part).sum()) for part in parts)
    return nans, sum(int(np.isinf(part).sum()) for part in parts)
