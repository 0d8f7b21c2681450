"""Looking without compressing: at a model, and at this machine.

What `compress inspect` or `compress doctor` shows is a field of `Inspected` or `Machine`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from compressor import graph, isolation, machine, runtime, samples, schemes, stages
from compressor.bench import noise as noises
from compressor.engines.tensorrt import check, provider
from compressor.engines.tensorrt.check import Refusal
from compressor.errors import RungError
from compressor.graph import Summary
from compressor.isolation import Limits
from compressor.pipeline.steps import Steps
from compressor.plan.dims import settle
from compressor.records import Channels, Model, Noise, Shapes, Tensor, Work
from compressor.schemes import Scheme

_FEEDS = 16


@dataclass(frozen=True)
class Inspected:
    """A model and what it is made of; `macs` of both are None where its dimensions are open."""

    model: Model
    summary: Summary
    channels: tuple[Channels, ...] | None = None  # where it was asked which could be pruned
    refusals: tuple[Refusal, ...] | None = None  # where it was asked what TensorRT would not take


@dataclass(frozen=True)
class Machine:
    """What numbers measured here depend on, and what could be installed besides."""

    cpu: str
    isa: tuple[str, ...]
    cpus_usable: int
    memory_bytes: int
    load: float | None
    saturates: bool
    scheme: Scheme
    gpu: str | None
    providers: tuple[str, ...]
    versions: Mapping[str, str]
    extras: Mapping[str, bool]
    builders: Mapping[str, str | None]  # of engines: why one cannot build here, None where it can


def inspect(
    model: Path, shapes: Shapes, *, prune: bool = False, devices: tuple[str, ...] | None = None
) -> Work[Inspected]:
    """Describe a model, in a child; if `prune`, also which of its channels could be removed.

    With `devices`, also what TensorRT would refuse of it, some of that on these devices only.

    Raises:
        InputError: The model is none, or it is quantized, so that it cannot be pruned.
    """
    steps = Steps(Limits(), verbose=False)
    with steps.of(str(model)):
        seen = (yield from steps.call("inspect", _inspect, model, dict(shapes), prune, devices)).value
    if seen.refusals is None:
        return seen
    told = yield from _asked(steps, model)
    further = (one for one in told if not _is_told(one, seen.refusals))
    return replace(seen, refusals=(*seen.refusals, *further))


def doctor() -> Work[Machine]:
    """Describe this machine, in a child that runs the saturation probe."""
    return (yield from isolation.call(_doctor, limits=Limits())).value


def noise(seconds: float) -> Work[Noise]:
    """Measure a small model against itself, in a child, to learn what difference this machine can see.

    Raises:
        InputError: The time is too short.
    """
    steps = Steps(Limits(), verbose=False)
    with TemporaryDirectory(prefix="compress-") as scratch, steps.of("doctor --noise"):
        return (yield from steps.call("noise", _noise, seconds, Path(scratch), more_s=seconds)).value


def _inspect(
    path: Path,
    given: Shapes,
    prune: bool,  # noqa: FBT001 - a keyword does not reach a child
    devices: tuple[str, ...] | None,
) -> Inspected:
    model = graph.open_model(path)
    shapes = settle(model.inputs, given, {}) if given or _is_settled(model) else None
    if prune:
        _check_runs(model, shapes)
    channels = _prunable(path, shapes) if prune else None
    refusals = None if devices is None else _refusals(model, given, devices)
    described = graph.at_shapes(model, shapes) if shapes else model
    return Inspected(described, graph.summary(path, shapes), channels, refusals)


def _refusals(model: Model, given: Shapes, devices: tuple[str, ...]) -> tuple[Refusal, ...]:
    """Check for TensorRT; a build derives the profiles of inputs of which only the first axis is open."""
    profiled = [tensor.name for tensor in model.inputs if tensor.name in given or _has_settled(tensor)]
    return check.refusals(model.path, provider.capabilities(devices).values(), profiled)


def _check_runs(model: Model, shapes: Shapes | None) -> None:
    """Make sure that the graph fits together, as following its channels takes for granted."""
    if shapes is None:
        runtime.load(model.path, runtime.options(1, spinning=False)).close()
    else:
        runtime.check_runs(model.path, next(iter(samples.synthetic(model.inputs, shapes, 1, 0, {}))))


def _prunable(path: Path, shapes: Shapes | None) -> tuple[Channels, ...]:
    with TemporaryDirectory() as folder:
        graph.normalise(path, normalised := Path(folder) / "model.onnx")
        try:
            return stages.removable(normalised, shapes)
        except (ArithmeticError, LookupError, ValueError) as error:
            if shapes is not None:  # it was run
                raise
            reason = f"shapes in the graph contradict each other ({error!r}); give --shape, so that it can be run"
            raise RungError(reason) from error


def _is_settled(model: Model) -> bool:
    """Tell whether only first axes are open, which default to 1."""
    return all(map(_has_settled, model.inputs))


def _has_settled(tensor: Tensor) -> bool:
    return tensor.shape is not None and all(isinstance(dim, int) for dim in tensor.shape[1:])


def _asked(steps: Steps, model: Path) -> Work[tuple[Refusal, ...]]:
    """Ask the parser that is installed, in a child of its own: there are models that it does not survive."""
    try:
        return (yield from steps.call("parser", check.asked, model)).value or ()
    except RungError as error:
        return (Refusal("", "", f"TensorRT's parser itself fails on this model: {error}; serve it with ONNX Runtime"),)


def _is_told(one: Refusal, known: Collection[Refusal]) -> bool:
    """Tell whether the check names the same node; the parser gives no name to a node without one."""
    return any(one.operator == other.operator and one.node in ("", other.node) for other in known)


def _doctor() -> Machine:
    isa, saturates = machine.isa(), runtime.saturates()
    return Machine(
        cpu=machine.cpu_name(),
        isa=isa,
        cpus_usable=machine.cpus_usable(),
        memory_bytes=machine.memory_bytes(),
        load=machine.load_average(),
        saturates=saturates,
        scheme=schemes.settled(schemes.AUTO, isa, saturates=saturates),
        gpu=machine.gpu(),
        providers=tuple(runtime.providers()),
        versions=machine.versions(),
        extras=machine.extras(),
        builders=provider.usable(),
    )


def _noise(seconds: float, folder: Path) -> Work[Noise]:
    path = graph.probe(folder / "probe.onnx")
    model = graph.open_model(path)
    shapes = settle(model.inputs, {}, {})
    feeds = tuple(samples.synthetic(model.inputs, shapes, _FEEDS, 0, {}))
    opener = partial(runtime.load, path, runtime.options(1, spinning=False))
    return (yield from noises.noise((opener, opener), feeds, seconds, 0))
