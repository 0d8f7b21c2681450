"""Sessions of ONNX Runtime: their options, opening them, and its exceptions as ours.

A session option is a line in `options`; what else a session can be asked is a method of `Loaded`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compressor.errors import InputError, MachineError, RungError
from compressor.records import Feeds, Outputs

if TYPE_CHECKING:
    import onnxruntime as ort

CPU = "CPUExecutionProvider"


class Loaded:
    """A model in an ONNX Runtime session; a `records.Session`."""

    def __init__(self, session: ort.InferenceSession) -> None:
        """Take an open session."""
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def __call__(self, feeds: Feeds) -> Outputs:
        """Run one batch.

        Raises:
            RungError: ONNX Runtime failed.
        """
        run = self._session.run
        try:  # and no context manager: of a model of microseconds it would be a tenth
            values = run(None, dict(feeds))
        except Exception as error:
            raise _refused("run it", error) from error
        return dict(zip(self._outputs, values, strict=True))

    def close(self) -> None:
        """Free the session; a later call fails."""
        del self._session


def options(threads: int, *, spinning: bool) -> dict[str, str]:
    """Give the session options that stand in an artifact, with which it is measured and served."""
    return {
        "intra_op_num_threads": str(threads),
        "inter_op_num_threads": "1",
        "session.intra_op.allow_spinning": str(int(spinning)),
        "providers": CPU,
    }


def emulated(settings: Mapping[str, str]) -> dict[str, str]:
    """Give the same options with integer arithmetic replaced by its exact float emulation."""
    return {**settings, "session.disable_quant_qdq": "1"}


def load(path: Path, settings: Mapping[str, str]) -> Loaded:
    """Open a model with the options of an artifact.

    Raises:
        MachineError: A provider that the options name is not available here.
        RungError: ONNX Runtime refuses the model.
    """
    import onnxruntime as ort

    providers = settings.get("providers", CPU).split(",")
    if missing := [name for name in providers if name not in ort.get_available_providers()]:
        raise MachineError(f"{missing[0]} is not available here; found {', '.join(ort.get_available_providers())}")
    with _translated(f"load {path.name}"):
        return Loaded(ort.InferenceSession(str(path), _session_options(settings), providers=providers))


def providers() -> list[str]:
    """Give the execution providers of this installation."""
    import onnxruntime as ort

    return list(ort.get_available_providers())


def check_runs(path: Path, feeds: Feeds) -> Outputs:
    """Run the caller's model once, as given.

    Raises:
        InputError: ONNX Runtime does not take it, or these inputs.
    """
    try:
        outputs = load(path, options(1, spinning=False))(feeds)
    except RungError as error:
        raise InputError(f"{path}: {error}; the model must run in ONNX Runtime before it can be compressed") from error
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            raise InputError(f"{path}: output {name!r} is a {type(value).__name__}, expected tensors only")
    return outputs


def _session_options(settings: Mapping[str, str]) -> Any:
    import onnxruntime as ort

    result = ort.SessionOptions()
    result.log_severity_level = 3
    for name, value in settings.items():
        if name == "optimized_model_filepath":
            result.optimized_model_filepath = value
        elif name.startswith("session."):
            result.add_session_config_entry(name, value)
        elif name != "providers":
            setattr(result, name, int(value))
    return result


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _refused(doing, error) from error


def _refused(doing: str, error: Exception) -> RungError:
    """Give ONNX Runtime's exceptions, which share no class of their own, as one of ours."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return RungError(f"ONNX Runtime could not {doing}: {reason[:400]}")
