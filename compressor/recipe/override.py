"""What the command line changes in a recipe.

A new flag of this kind is a field of `Overrides` and a line in `override`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from compressor import schemes
from compressor.bench import load
from compressor.bench.load import Load
from compressor.engines import Auto, Engine, Onnxruntime, Tensorrt
from compressor.errors import InputError
from compressor.gates import PERCENTILES, Accuracy, Champion, Gate, Latency
from compressor.recipe.tree import Calibration, Data, Evaluation, Recipe
from compressor.recipe.words import said
from compressor.units import shape

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
_ENGINES = {"auto": Auto, "onnxruntime": Onnxruntime}
_TENSORRT = "tensorrt"
_LARGEST_BATCH = 65536


@dataclass(frozen=True)
class Overrides:
    """Flags as they were typed; None where a flag was not given."""

    sla: str | None = None
    reserve: str | None = None
    max_drop: str | None = None
    calibration: Path | None = None
    evaluation: Path | None = None
    shapes: tuple[str, ...] = ()
    registry: str | None = None
    name: str | None = None
    threads: int | None = None
    rate: str | None = None
    concurrency: int | None = None
    duration: str | None = None
    engine: str | None = None
    target: str | None = None
    profiles: tuple[str, ...] = ()
    precision: str | None = None
    metric: str | None = None
    against: str | None = None
    custom_ops: tuple[Path, ...] = ()


def override(recipe: Recipe, given: Overrides) -> Recipe:
    """Give the recipe with what the flags say put in its place.

    Raises:
        InputError: A flag's value cannot be read, or does not fit the recipe; the message names the flag.
    """
    return recipe.model_copy(
        update={
            "gates": _gates(recipe.gates, given),
            "data": _data(recipe.data, given),
            "shapes": {**recipe.shapes, **shapes(given.shapes)},
            "registry": _changed(recipe.registry, "--registry or --name", uri=given.registry, name=given.name),
            "engine": _engine(recipe.engine, given),
            "target": recipe.target if given.target is None else _target(given.target),
            "load": _load(recipe.load, given),
            "limits": _changed(recipe.limits, "--duration", measure=given.duration),
            "custom_ops": given.custom_ops or recipe.custom_ops,
            "baseline": recipe.baseline if given.against is None else _against(recipe, given.against),
        }
    )


def shapes(given: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Read `--shape` flags.

    Raises:
        InputError: One is not NAME=DIMENSIONS.
    """
    return dict(map(_shape, given))


def batches(given: str) -> tuple[int, ...]:
    """Read a `--batch` flag: batch sizes such as `1,2,4`, in their order.

    Raises:
        InputError: One is no whole number from 1 to 65536, or stands twice.
    """
    texts = [text.strip() for text in given.split(",")]
    for text in texts:
        if not _is_batch(text):
            expected = f"expected whole numbers from 1 to {_LARGEST_BATCH} such as 1,2,4"
            raise InputError(f"--batch: {expected}, found {text[:80]!r}")
    found = tuple(map(int, texts))
    if twice := next((size for size in found if found.count(size) > 1), None):
        raise InputError(f"--batch: {twice} stands twice")
    return found


def _against(recipe: Recipe, model: str) -> Champion:
    kept = {"tolerance": recipe.baseline.tolerance} if recipe.baseline else {}
    return _read("--against", lambda: Champion.model_validate({"model": model, **kept}))


def _target(name: str) -> str:
    name = _TENSORRT if name.startswith(f"{_TENSORRT}:") else name
    known = [schemes.AUTO, *(scheme.name for scheme in schemes.SCHEMES)]
    if name not in known:
        raise InputError(f"--target: expected one of {', '.join(known)}, found {name!r}")
    return name


def _gates(gates: tuple[Gate, ...], given: Overrides) -> tuple[Gate, ...]:
    if given.sla is not None:
        gates = (_sla(given.sla), *(gate for gate in gates if not isinstance(gate, Latency)))
    if given.reserve is not None and not any(isinstance(gate, Latency) for gate in gates):
        raise InputError("--reserve keeps part of a latency budget, but there is none: give --sla too")
    if given.max_drop is not None:
        drop = _read("--max-drop", lambda: Accuracy(max_drop=given.max_drop))
        if not any(isinstance(gate, Accuracy) for gate in gates):
            gates = (*gates, drop)
    return tuple(_gate(gate, given) for gate in gates)


def _gate(gate: Gate, given: Overrides) -> Gate:
    if isinstance(gate, Latency):
        return _changed(gate, "--reserve", reserve=given.reserve)
    return _changed(gate, "--max-drop", max_drop=given.max_drop) if isinstance(gate, Accuracy) else gate


def _sla(text: str) -> Latency:
    percentile, _, limit = text.rpartition("=")
    if "=" in text and percentile not in PERCENTILES:
        raise InputError(f"--sla: expected one of {', '.join(PERCENTILES)} before the =, found {percentile!r}")
    return _read("--sla", lambda: Latency.model_validate({percentile or "p99": limit}))


def _data(data: Data, given: Overrides) -> Data:
    if given.calibration is not None:
        kept = {"samples": data.calibration.samples} if data.calibration else {}
        data = data.model_copy(update={"calibration": Calibration(path=given.calibration, **kept)})
    if given.evaluation is not None:
        scored = {"samples": data.evaluation.samples} if data.evaluation else {}
        data = data.model_copy(update={"evaluation": Evaluation(path=given.evaluation, **scored)})
    return data if given.metric is None else data.model_copy(update={"metric": given.metric})


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, dims = text.rpartition("=")
    if not equals or not name:
        raise InputError(f"--shape: expected NAME=DIMENSIONS such as input=1x3x224x224, found {text!r}")
    return name, _read("--shape", lambda: shape(dims))


def _engine(engine: Engine, given: Overrides) -> Engine:
    """Settle the engine: `--engine`, `--threads`, and what other flags say of one of TensorRT."""
    named = (given.target or "").startswith(f"{_TENSORRT}:")
    if named or isinstance(engine, Tensorrt):
        return _tensorrt(engine if isinstance(engine, Tensorrt) else Tensorrt(), given)
    for flag, value in (("--profile", given.profiles), ("--precision", given.precision)):
        if value:
            raise InputError(f"{flag} is of a TensorRT engine: give --target tensorrt:a10g too, with the device's name")
    if given.engine is not None:
        if given.engine not in _ENGINES:
            raise InputError(f"--engine: expected one of {', '.join(_ENGINES)}, found {given.engine!r}")
        kind = _ENGINES[given.engine]
        engine = engine if isinstance(engine, kind) else kind()
    if given.threads is None:
        return engine
    asked = engine.model_dump() if isinstance(engine, Onnxruntime) else {}
    return _read("--threads", lambda: Onnxruntime.model_validate({**asked, "threads": given.threads}))


def _tensorrt(engine: Tensorrt, given: Overrides) -> Tensorrt:
    if given.engine or given.threads:
        raise InputError("--engine and --threads are of ONNX Runtime, and the engine is TensorRT: leave them out")
    devices = [name for name in (given.target or "").partition(":")[2].split(",") if name]
    engine = _changed(engine, "--target", devices=devices or None)
    engine = _changed(engine, "--precision", precision=given.precision)
    return _changed(engine, "--profile", profiles=[_profile(text) for text in given.profiles] or None)


def _profile(text: str) -> dict[str, str]:
    """Read `input=1x3/8x3/32x3,mask=...`, one profile."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    if not all(name and range_ for name, _, range_ in pairs):
        raise InputError(f"--profile: expected NAME=LEAST/OPTIMAL/LARGEST such as batch=1/8/32, found {text!r}")
    if twice := next((name for name, _, _ in pairs if sum(name == other for other, _, _ in pairs) > 1), None):
        raise InputError(f"--profile: {twice!r} stands twice in {text!r}; another --profile is another profile")
    return {name: range_ for name, _, range_ in pairs}


def _load(asked: Load, given: Overrides) -> Load:
    if given.rate is None:
        closed = asked if given.concurrency is None or isinstance(asked, load.Closed) else load.Closed()
        return _changed(closed, "--concurrency", concurrency=given.concurrency)
    if given.concurrency is not None:
        raise InputError("--rate and --concurrency: give one of them; requests come at a rate, or so many at a time")
    try:
        return load.parse(given.rate)
    except InputError as error:
        raise InputError(f"--rate: {error}") from error


def _is_batch(text: str) -> bool:
    whole = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_BATCH))
    return whole and 1 <= int(text) <= _LARGEST_BATCH


def _changed(value: M, flag: str, **fields: object) -> M:
    """Give a copy with the fields that are not None read anew, so that what they must satisfy is checked again."""
    wanted = {name: field for name, field in fields.items() if field is not None}
    if not wanted:
        return value
    before = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _read(flag, lambda: type(value).model_validate({**before, **wanted}))


def _read(flag: str, build: Callable[[], T]) -> T:
    try:
        return build()
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = "".join(f"{part}: " for part in problem["loc"] if f"--{part}".replace("_", "-") != flag)
        raise InputError(f"{flag}: {where}{said(problem)}") from error
    except ValueError as error:
        raise InputError(f"{flag}: {error}") from error
