"""Refusals: what makes a file no usable ONNX model, each in one sentence.

Add a check as a function that raises InputError, and call it in `files.load` (at every reading) or in
`facts.open_model` (once a run).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import InputError, MachineError
from compressor.graph import count

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_OTHER_FORMATS: Mapping[bytes, str] = {
    b"version https://git-lfs": "a Git LFS pointer and not the model itself; fetch the file with `git lfs pull`",
    b"PK\x03\x04": "a zip archive, probably a PyTorch file; export it to ONNX first (torch.onnx.export)",
    b"\x80": "a pickle, probably a PyTorch file; export it to ONNX first (torch.onnx.export)",
    b"\x89HDF": "an HDF5 file, probably a Keras model; export it to ONNX first (tf2onnx)",
}
# The checker of onnx 1.23 refuses these, ONNX Runtime does not, and normalising repairs each of them.
_TOLERATED = (
    "Field 'shape' of 'type' is required",
    "topologically sorted",
    "in initializer but not in graph input",
)
_ELEMENTS_AT_ONCE = 1 << 22


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
        file = path.parent / str(tensor.location)
        if not file.resolve().is_relative_to(home):
            raise InputError(
                f"{path}: the data of tensor {tensor.name!r} lie in {str(tensor.location)!r}, outside the model's "
                "folder; copy that file (no link) beside the model and save the model with a relative location"
            )
        if file.exists() and file.stat().st_nlink > 1:  # onnx_ir and onnx refuse to read it
            raise InputError(f"{path}: external data file {file} is a hard link, expected a file of its own; copy it")
        if not file.is_file():
            raise InputError(
                f"{path}: external data file {str(tensor.location)!r} is missing, looked for at {file}; "
                "copy it along with the model"
            )
        end = (tensor.offset or 0) + tensor.nbytes
        if file.stat().st_size < end:
            raise InputError(
                f"{path}: external data file {file} has {file.stat().st_size} bytes, but tensor {tensor.name!r} ends "
                f"at byte {end}; the file is cut off or belongs to another model, copy it again"
            )


def refuse_invalid(path: Path) -> None:
    """Return if the ONNX checker finds nothing that would also stop a runtime.

    Raises:
        InputError: The file breaks the ONNX specification.
    """
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().splitlines()[0]
        if not any(text in reason for text in _TOLERATED):
            raise InputError(f"{path}: not a valid ONNX model: {reason}; export it again") from error


def refuse_dangling(path: Path, model: ir.Model) -> None:
    """Return if everything that a node reads is given by something; the checker's words for that also mean disorder.

    Raises:
        InputError: A node reads a name that nothing gives.
    """
    for node in model.graph.all_nodes():
        for value in node.inputs:
            if value is not None and not (value.producer() or value.is_graph_input() or value.is_initializer()):
                raise InputError(
                    f"{path}: node {node.name or node.op_type!r} reads {value.name!r}, which nothing gives; export it "
                    "again"
                )


def refuse_non_finite(path: Path, model: ir.Model) -> None:
    """Return if no constant holds NaN and no weight holds an infinity.

    Masks and bounds (inputs of Add, Where, Clip, Pad) may be infinite on purpose.

    Raises:
        InputError: A tensor does; the training probably diverged.
    """
    for value, tensor in count.constants(model):
        if tensor.dtype.name not in count.FLOATS:
            continue
        nans, infinities = _non_finite(tensor.numpy())
        if nans or (infinities and count.is_weight(value)):
            raise InputError(
                f"{path}: tensor {value.name!r} holds {nans} NaN and {infinities} infinite values of {tensor.size}; "
                "expected finite weights; did the training diverge? Export a good checkpoint"
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
