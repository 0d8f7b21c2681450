"""A folder of engines: the typed graph, a file for each group of devices, and `engine.json` about all of them.

What else a build needs to know is a field of `Wanted`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from compressor import graph, workspace
from compressor.engines.tensorrt import build, provider, record, typed
from compressor.engines.tensorrt.build import Engine, Order
from compressor.engines.tensorrt.kit import KitPlan
from compressor.engines.tensorrt.kit import write as write_kit
from compressor.engines.tensorrt.record import Bound, Provider, Range, Record, Records
from compressor.engines.tensorrt.typed import Precision, Typed
from compressor.errors import RungError
from compressor.records import Artifact, Model, Progress, Tensor, Work, relayed
from compressor.samples import Samples
from compressor.units import human_bytes, write_shape

ONNX = "model.onnx"
_SAMPLES = 32
"""Feeds that are looked at for what FP16 cannot hold."""
TURING = (7, 5)
_ON_OLD = "TensorRT-RTX has neither FP32 products nor INT8 there: use precision fp16, and no `quantize`"
_SUFFIX: Mapping[Provider, str] = {"tensorrt": ".engine", "tensorrt-rtx": ".rtx.engine"}
_WEIGHT_ONLY = "TensorRT-RTX's support matrix lists INT8 for the weights of products only"
_NAMED = 3  # nodes that a note names


@dataclass(frozen=True)
class Wanted:
    """What to build: settings of `Tensorrt`, with `profiles` by input."""

    devices: tuple[str, ...]
    precision: Precision
    profiles: tuple[Mapping[str, Range], ...]
    workspace_bytes: int | None = None
    timing_cache: Path | None = None
    refit: bool = False
    optimization_level: int = 3
    cuda_graph: bool = False


@dataclass(frozen=True)
class _Group:
    """Devices that share an engine, and their compute capabilities, each once."""

    devices: tuple[str, ...]
    capabilities: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        return "+".join(self.devices)


def made(wanted: Wanted, model: Model, places: tuple[Path, Path], samples: Samples) -> Work[tuple[Artifact, ...]]:
    """Write everything, and give an artifact for each engine.

    Args:
        wanted: What to build.
        model: Of what.
        places: The folder to make, which is gone again where something fails, and the run's, in which that lies.
        samples: They tell which values FP16 cannot hold.

    Raises:
        RungError: The graph cannot be typed, parsed or built.
        MachineError: Nobody can build here.
    """
    folder, _ = places
    folder.mkdir(parents=True)
    try:
        return (yield from _made(wanted, model, places, samples))
    except BaseException:
        shutil.rmtree(folder)  # all devices or none: nobody asked for some of them
        raise


def _made(wanted: Wanted, model: Model, places: tuple[Path, Path], samples: Samples) -> Work[tuple[Artifact, ...]]:
    folder, run = places
    by = provider.chosen(wanted.devices)
    trt, onnx = provider.module(by), folder / ONNX
    yield Progress("types")
    types = typed.typed(model.path, onnx, wanted.precision, islice(samples, _SAMPLES))
    found: list[tuple[Record, Engine]] = []
    for group in _groups(by, wanted.devices):
        out = folder / f"model.{group.name}{_SUFFIX[by]}"
        try:
            engine = yield from _under(group.name, build.built(trt, _order(by, group, wanted), onnx, out))
        except RungError as error:
            hint = f"; {_ON_OLD}" if TURING in group.capabilities else ""
            raise RungError(f"for {', '.join(group.devices)}: {error}{hint}") from error
        found.append((_record(out, group, (engine, types), wanted, (by, str(trt.__version__))), engine))
    text = record.write(Records(engines=tuple(one for one, _ in found)))
    workspace.write_text(folder / record.FILE, text)
    made_up = types.precision == "fp16" and samples.source.synthetic
    artifacts = (_artifact(one, engine, types, (folder, run)) for one, engine in found)
    return tuple(replace(one, options={**one.options, "uncalibrated": str(int(made_up))}) for one in artifacts)


def kit(wanted: Wanted, model: Model, where: tuple[Path, str], samples: Samples) -> Work[Path]:
    """Write a kit into a folder, under the name of the model.

    Raises:
        RungError: The graph cannot be typed.
    """
    folder, name = where
    yield Progress("types")
    with TemporaryDirectory() as scratch:
        types = typed.typed(model.path, onnx := Path(scratch) / ONNX, wanted.precision, islice(samples, _SAMPLES))
        plan = KitPlan(
            name=name,
            devices=wanted.devices,
            profiles=tuple(dict(profile) for profile in wanted.profiles),
            workspace_bytes=wanted.workspace_bytes,
            precision=wanted.precision,
            computes=_computes("tensorrt", types),
            optimization_level=wanted.optimization_level,
            refit=wanted.refit,
            timing_cache=wanted.timing_cache,
            inputs=tuple(map(_bound, model.inputs)),
            outputs=tuple(map(_bound, model.outputs)),
        )
        write_kit(folder, onnx, plan)
    return folder


def _bound(tensor: Tensor) -> Bound:
    return Bound(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tuple(dim if isinstance(dim, int) else -1 for dim in tensor.shape or ()),
    )


def _groups(by: Provider, devices: Sequence[str]) -> list[_Group]:
    """Divide devices into those that share an engine.

    An engine of TensorRT-RTX runs on all from compute capability 8.0 on; Turing must be asked for alone. One of
    TensorRT is for the GPU that is here.
    Source: NVIDIA TensorRT-RTX documentation, CPU-only AOT and engines.
    """
    known = provider.capabilities(devices)
    old = [name for name in devices if known.get(name) == TURING and by == "tensorrt-rtx"]
    others = [name for name in devices if name not in old]
    return [
        _Group(tuple(names), tuple(sorted({known[name] for name in names if name in known})))
        for names in (others, old)
        if names
    ]


def _under(name: str, work: Work[Engine]) -> Work[Engine]:
    return (yield from relayed(work, lambda progress: replace(progress, step=f"{name}, {progress.step}")))


def _order(by: Provider, group: _Group, wanted: Wanted) -> Order:
    return Order(
        provider=by,
        capabilities=group.capabilities,
        profiles=wanted.profiles,
        workspace_bytes=wanted.workspace_bytes,
        timing_cache=None if by == "tensorrt-rtx" else wanted.timing_cache,  # version 1.7 times nothing
        refit=wanted.refit,
        optimization_level=wanted.optimization_level,
    )


def _record(out: Path, group: _Group, what: tuple[Engine, Typed], wanted: Wanted, by: tuple[Provider, str]) -> Record:
    engine, types = what
    return Record(
        file=out.name,
        sha256=workspace.sha256(out),
        size_bytes=out.stat().st_size,
        provider=by[0],
        version=by[1],
        devices=group.devices,
        capabilities=tuple(f"{major}.{minor}" for major, minor in group.capabilities),
        precision=wanted.precision,
        computes=_computes(by[0], types),
        profiles=tuple(dict(profile) for profile in wanted.profiles),
        inputs=engine.inputs,
        outputs=engine.outputs,
        onnx_sha256=workspace.sha256(out.with_name(ONNX)),
        flags=engine.flags,
        build_s=engine.seconds,
        cuda_graph=wanted.cuda_graph,
    )


def _computes(by: Provider, types: Typed) -> str:
    """Say what the arithmetic of the engine is, as far as that is known without running it."""
    rest = "FP16" if types.precision == "fp16" else "FP32"
    rest += f", FP32 at {types.kept} nodes" if types.kept else ""
    if not types.pairs:
        return rest
    unproved = f"; {_WEIGHT_ONLY}, so that other layers may compute otherwise" if by == "tensorrt-rtx" else ""
    return f"INT8 asked for by {types.pairs} DequantizeLinear, elsewhere {rest}{unproved}"


def _artifact(one: Record, engine: Engine, types: Typed, places: tuple[Path, Path]) -> Artifact:
    folder, run = places
    paths = (folder / one.file, folder / record.FILE, *graph.parts(folder / ONNX))
    return Artifact(
        engine=one.provider,
        device="+".join(one.devices),
        files=tuple(workspace.file(path, run) for path in paths),
        build_s=engine.seconds,
        options={
            "precision": one.precision,
            "computes": one.computes,
            "version": one.version,
            "capabilities": ",".join(one.capabilities),
        },
        notes=tuple(_notes(one, engine, types, folder)),
    )


def _notes(one: Record, engine: Engine, types: Typed, folder: Path) -> Iterator[str]:
    onnx_bytes = sum(path.stat().st_size for path in graph.parts(folder / ONNX))
    if types.pairs and one.size_bytes > onnx_bytes:
        yield (
            f"the engine has {human_bytes(one.size_bytes)}, its graph {human_bytes(onnx_bytes)}: "
            "its size is no proof of 8-bit weights"
        )
    if types.overflowing:
        names = ", ".join(types.overflowing[:_NAMED]) + ("" if len(types.overflowing) <= _NAMED else ", ...")
        yield f"FP32, because FP16 cannot hold what samples gave there: {names}"
    for i, profile in enumerate(one.profiles):
        ranges = (f"{name} {'/'.join(map(write_shape, range_))}" for name, range_ in profile.items())
        yield f"profile {i}: {', '.join(ranges)}"
    yield from (f"builder: {line}" for line in engine.said)
