"""Whether an engine file is the one that its record describes, and runs on what is in this machine.

What else can be wrong with one is a function here, called in `execution.open_engine`.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from compressor.engines.tensorrt.driver import Loaded, Present
from compressor.engines.tensorrt.record import FILE, Record
from compressor.errors import InputError, MachineError

COMPATIBLE = "VERSION_COMPATIBLE"
"""The builder flag of engines that later versions run too."""


def check_gpu(path: Path, record: Record, present: Present) -> None:
    """Refuse an engine for another GPU with a MachineError that names both."""
    if present.capability not in record.capabilities:
        raise MachineError(
            f"{path}: built for compute capability {', '.join(record.capabilities)} ({', '.join(record.devices)}), "
            f"found {present.capability} ({present.gpu}): build it for this GPU"
        )


def check_version(path: Path, record: Record, present: Present) -> None:
    """Refuse an engine of another version with a MachineError that names both.

    TensorRT-RTX loads its own version's alone, TensorRT those of the same major, minor and patch, or of earlier ones
    where they were built to be version-compatible. Source: "Version Compatibility" in NVIDIA's TensorRT guide.
    """
    if record.provider == "tensorrt-rtx":
        fits = present.version == record.version
    elif COMPATIBLE in record.flags:
        fits = _numbers(present.version) >= _numbers(record.version)
    else:
        fits = _numbers(present.version) == _numbers(record.version)
    if not fits:
        raise MachineError(
            f"{path}: built with {record.provider} {record.version}, found {present.version}: install the version it "
            "was built with, or build it again"
        )


def _numbers(version: str) -> list[int]:
    """Give major, minor and patch, on which engines of TensorRT depend."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def read(path: Path, record: Record) -> bytes:
    """Read an engine file; InputError where it is missing or its bytes are not those that the record states."""
    try:
        engine = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: the engine that {FILE} describes must lie beside it") from error
    if (found := hashlib.sha256(engine).hexdigest()) != record.sha256:
        raise InputError(
            f"{path}: expected sha256 {record.sha256} as {FILE} says, found {found}: build or copy it again"
        )
    return engine


def check_loaded(path: Path, record: Record, loaded: Loaded) -> None:
    """Refuse, with an InputError, an engine whose inputs, outputs or stated profiles are not those of the record."""
    expected = {(bound.name, bound.dtype) for bound in (*record.inputs, *record.outputs)}
    found = {(io.name, io.dtype) for io in loaded.ios}
    told = [ranges.items() for ranges in record.profiles]
    if expected != found or (any(told) and len(told) != len(loaded.profiles)):
        raise InputError(f"{path}: its inputs, outputs or profiles are not those that {FILE} states; build it again")
    if any(not items <= ranges.items() for items, ranges in zip(told, loaded.profiles, strict=False)):
        raise InputError(f"{path}: its profiles take other shapes than {FILE} states; build it again")
