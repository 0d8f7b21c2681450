"""Build the engine of this folder with NVIDIA's TensorRT 10 or 11, for the GPU of this machine, and check it.

`python build_engine.py` needs Python 3.10, the package `tensorrt` and nothing else; it is copied into a build kit.
It writes `model.DEVICE.engine` and `engine.json` beside itself. Another setting of the builder is set in `configure`.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

FOLDER = Path(__file__).resolve().parent
DTYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "FP8": "float8_e4m3fn"}
"""TensorRT's names of types where they are not numpy's in capitals."""
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""Source: `CUdevice_attribute` in cuda.h."""


def main() -> None:
    """Build, check, and only then write."""
    template = json.loads((FOLDER / "engine.template.json").read_text(encoding="utf-8"))
    settings, record = template["build"], template["engines"][0]
    record["profiles"] = json.loads((FOLDER / "profiles.json").read_text(encoding="utf-8"))
    check_files(settings["files"])
    trt = tensorrt()
    name, capability = gpu()
    device = device_name(settings, name, capability)
    sys.stdout.write(f"building {settings['model']} with tensorrt {trt.__version__} for {name} ({capability})\n")
    log = logger(trt)
    started = time.monotonic()
    engine, flags = build(trt, log, settings, record["profiles"])
    record["build_s"] = round(time.monotonic() - started, 3)
    record.update(checked(trt, log, engine, record), version=trt.__version__, flags=flags)
    record.update(devices=[device], capabilities=[capability])
    save(engine, record)


def check_files(files: dict[str, str]) -> None:
    """End where a file of the model is not the one the kit was written with."""
    for name, sha256 in files.items():
        digest = hashlib.sha256()
        with (FOLDER / name).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != sha256:
            sys.exit(f"{name}: sha256 {sha256} was expected, {digest.hexdigest()} found: copy the kit again")


def tensorrt() -> Any:
    """Give the package."""
    try:
        trt = importlib.import_module("tensorrt")
    except (ImportError, OSError) as error:
        sys.exit(f"tensorrt cannot be imported ({error}): pip install tensorrt, 10 or 11, from NVIDIA's index")
    if major(trt) not in {10, 11}:
        sys.exit(f"tensorrt {trt.__version__}: expected 10 or 11, to which networks are strongly typed")
    return trt


def major(trt: Any) -> int:
    """Give the first number of the version."""
    return int(trt.__version__.partition(".")[0])


def gpu() -> tuple[str, str]:
    """Give the name and the compute capability of the first GPU, asked of its driver."""
    library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        sys.exit(f"no NVIDIA driver: {error}; an engine is built on a machine with the GPU that it is for")
    name = ctypes.create_string_buffer(256)
    device, high, low = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    refused = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), 0)
        or cuda.cuDeviceGetName(name, len(name), device)
        or cuda.cuDeviceGetAttribute(ctypes.byref(high), CAPABILITY_MAJOR, device)
        or cuda.cuDeviceGetAttribute(ctypes.byref(low), CAPABILITY_MINOR, device)
    )
    if refused:
        sys.exit(f"{library}: CUDA error {refused}: no NVIDIA GPU answers; build on a machine that has one")
    return name.value.decode(), f"{high.value}.{low.value}"


def device_name(settings: dict[str, Any], gpu_name: str, capability: str) -> str:
    """Give the name of the device that this GPU is, or `sm` and its capability; warn where the kit is for others."""
    words = re.split(r"[\s-]+", gpu_name)
    found = [
        known["name"]
        for known in settings["gpus"]
        if known["capability"] == capability and known["gpu"].split()[-1] in words
    ]
    device = str(found[0]) if found else f"sm{capability.replace('.', '')}"
    if not {device, "current"} & set(settings["devices"]):
        sys.stderr.write(f"warning: the kit is for {', '.join(settings['devices'])}; this engine is for {gpu_name}\n")
    return device


def logger(trt: Any) -> Any:
    """Give a logger that shows warnings and keeps errors."""

    class Log(trt.ILogger):  # type: ignore[misc] # tensorrt states no types
        """The messages of the parser, the builder and the runtime."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(msg)
            elif severity == trt.ILogger.WARNING:
                sys.stderr.write(f"warning: {msg}\n")

    return Log()


def build(trt: Any, log: Any, settings: dict[str, Any], profiles: list[dict[str, Any]]) -> tuple[bytes, list[str]]:
    """Give the engine and the flags that it was built with."""
    builder = trt.Builder(log)
    # TensorRT 11 knows no other networks, and says of the flag that it is deprecated
    typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) if major(trt) == 10 else 0  # noqa: PLR2004
    network = builder.create_network(typed)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(FOLDER / settings["model"])):
        stop(
            f"{settings['model']} was not accepted", [said(parser.get_error(i)) for i in range(parser.num_errors)], log
        )
    config = builder.create_builder_config()
    configure(trt, config, settings)
    flags = [name for name, flag in trt.BuilderFlag.__members__.items() if config.get_flag(flag)]
    for number, shapes in enumerate(profiles):
        profile = builder.create_optimization_profile()
        for name, (least, optimal, most) in shapes.items():
            profile.set_shape(name, tuple(least), tuple(optimal), tuple(most))
        if config.add_optimization_profile(profile) < 0:
            stop(f"profile {number} was not accepted", [json.dumps(shapes)], log)
    engine = built_with_cache(builder, network, config, settings["timing_cache"])
    if engine is None:
        stop("no engine was built", [], log)
    return bytes(engine), flags


def said(error: Any) -> str:
    """Give what the parser says of a node."""
    return f"{error.node_operator()} {error.node_name()!r}: {error.desc()}"


def configure(trt: Any, config: Any, settings: dict[str, Any]) -> None:
    """Set what the kit asks for."""
    if settings["workspace_bytes"]:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings["workspace_bytes"])
    config.builder_optimization_level = settings["optimization_level"]
    if settings["refit"]:
        config.set_flag(trt.BuilderFlag.REFIT)


def built_with_cache(builder: Any, network: Any, config: Any, name: str | None) -> Any:
    """Build, with the timings of earlier builds where a cache is kept; one of another version or GPU is begun anew."""
    if name is None:
        return builder.build_serialized_network(network, config)
    path = FOLDER / name
    cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
    if not config.set_timing_cache(cache, ignore_mismatch=False):
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, ignore_mismatch=False)
    engine = builder.build_serialized_network(network, config)
    if engine is not None:
        write(path, bytes(cache.serialize()))
    return engine


def checked(trt: Any, log: Any, data: bytes, record: dict[str, Any]) -> dict[str, Any]:
    """Load the engine, and give its inputs and outputs; end where they or its profiles are not those of the kit."""
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    if engine is None:
        stop("the engine cannot be loaded", [], log)
    found: dict[str, list[dict[str, Any]]] = {"inputs": [], "outputs": []}
    for name in (engine.get_tensor_name(i) for i in range(engine.num_io_tensors)):
        kind = "inputs" if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT else "outputs"
        dtype = engine.get_tensor_dtype(name).name
        bound = {"name": name, "dtype": DTYPES.get(dtype, dtype.lower()), "shape": list(engine.get_tensor_shape(name))}
        found[kind].append(bound)
    wrong = [line for kind in found for line in differences(kind, record[kind], found[kind])]
    wrong += profile_differences(engine, record["profiles"])
    if wrong:
        stop("the engine is not what the kit describes", wrong, log)
    return found


def differences(kind: str, expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Say where inputs or outputs differ; a dimension that one side leaves open fits any."""
    known, there = ({bound["name"]: bound for bound in bounds} for bounds in (expected, found))
    lines = [f"{kind}: {sorted(known)} were expected, {sorted(there)} found"] if set(known) != set(there) else []
    for name in sorted(set(known) & set(there)):
        want, have = known[name], there[name]
        same_rank = len(want["shape"]) == len(have["shape"])
        fits = same_rank and all(a == b or -1 in (a, b) for a, b in zip(want["shape"], have["shape"], strict=True))
        if want["dtype"] != have["dtype"] or not fits:
            lines.append(
                f"{kind}: {name}: {want['dtype']} {want['shape']} expected, {have['dtype']} {have['shape']} found"
            )
    return lines


def profile_differences(engine: Any, profiles: list[dict[str, Any]]) -> list[str]:
    """Say where the engine takes other shapes than asked for."""
    if profiles and engine.num_optimization_profiles != len(profiles):
        return [f"profiles: {len(profiles)} were expected, {engine.num_optimization_profiles} found"]
    lines = []
    for index, shapes in enumerate(profiles):
        for name, expected in shapes.items():
            found = [list(shape) for shape in engine.get_tensor_profile_shape(name, index)]
            if found != expected:
                lines.append(f"profile {index}: {name}: {expected} was expected, {found} found")
    return lines


def save(engine: bytes, record: dict[str, Any]) -> None:
    """Write the engine and `engine.json`, which keeps what it says of the same model on other devices."""
    file = FOLDER / f"model.{record['devices'][0]}.engine"
    write(file, engine)
    record.update(file=file.name, sha256=hashlib.sha256(engine).hexdigest(), size_bytes=len(engine))
    path = FOLDER / "engine.json"
    others = json.loads(path.read_text(encoding="utf-8"))["engines"] if path.exists() else []
    same = [o for o in others if o["onnx_sha256"] == record["onnx_sha256"] and o["file"] != record["file"]]
    write(path, (json.dumps({"schema_version": 1, "engines": [*same, record]}, indent=2) + "\n").encode())
    sys.stdout.write(f"{file.name}: {len(engine)} bytes; its inputs, outputs and profiles are those of the kit\n")


def write(path: Path, data: bytes) -> None:
    """Write a file so that under its name there is only ever the whole of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def stop(what: str, reasons: list[str], log: Any) -> NoReturn:
    """End with a sentence, and under it all that the parser and the logger said."""
    sys.exit("\n  ".join([f"{what}:", *reasons, *log.errors]))


if __name__ == "__main__":
    main()
