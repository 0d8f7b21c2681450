"""The recipe: what is asked of a run, read strictly from YAML, with the default one behind `--sla`.

A new setting is a field here, or of the family that it belongs to; reader, schema and report follow by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, PlainSerializer, field_validator, model_validator

from compressor import schemes
from compressor.bench.load import Closed, Load
from compressor.engines import Auto, Engine
from compressor.gates import PERCENTILES, Accuracy, At, Champion, Gate, Latency
from compressor.grammar import key
from compressor.isolation import Limits
from compressor.registry import Registry
from compressor.samples import Preprocess
from compressor.stages import Fuse, Prune, Quantize, Recover, Stage
from compressor.units import Shape

BASELINE = "baseline"
FilePath = Annotated[Path, PlainSerializer(str, return_type=str)]


class Calibration(BaseModel, frozen=True, extra="forbid"):
    """Inputs that settle the quantization ranges; no labels needed. 300 images gained nothing over 100.

    `path`: a .csv, .npy, .npz or .parquet file, a folder or zip of images, .npy or .npz files, or
    `package.module:function`, which gives samples. Unset, it is looked for beside the model.
    """

    path: FilePath | None = None
    samples: int = Field(default=200, ge=1)


class Evaluation(BaseModel, frozen=True, extra="forbid"):
    """Inputs that are scored before and after, in the same forms; `samples` None: all of them."""

    path: FilePath | None = None
    samples: int | None = Field(default=None, ge=1)


class Data(BaseModel, frozen=True, extra="forbid"):
    """Where inputs come from and how they become what the model takes. Unset paths are looked for beside the model.

    `metric` is top1, top5, f1 or auc against classes, mae or spearman against numbers, cer or wer against texts, map
    against boxes, agreement, cosine or sqnr against the original model, or `package.module:function`. `alphabet`: a
    text file with a symbol a line, for cer and wer of a model whose outputs score characters.
    """

    calibration: Calibration | None = None
    evaluation: Evaluation | None = None
    preprocess: Preprocess | None = None
    metric: str | None = None
    alphabet: FilePath | None = None

    @property
    def named(self) -> Mapping[str, Path]:
        """The paths that are named: of `calibration`, of `evaluation`."""
        blocks = {"calibration": self.calibration, "evaluation": self.evaluation}
        return {name: block.path for name, block in blocks.items() if block and block.path}


def _misplaced(stage: type[Stage], before: Collection[type[Stage]]) -> str:
    """Say why a prune or recover cannot stand behind these stages; nothing if it can."""
    name = key(stage)
    if Quantize in before:
        return f"expected {name} before quantize, whose scales belong to the weights that it finds"
    if Fuse in before:
        return f"expected {name} before fuse, which merges operators that it has to find apart"
    if stage is Prune and Prune in before:
        return "expected at most one prune in a rung, whose share is of the original model"
    if stage is Recover and Prune not in before:
        return "expected prune before recover, which makes good what pruning lost"
    return ""


class Rung(BaseModel, frozen=True, extra="forbid"):
    """A complete list of stages from the original model, under a name that stands in the report."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)
    stages: tuple[Stage, ...] = Field(min_length=1)
    engine: Engine | None = None

    @field_validator("stages")
    @classmethod
    def _float_first(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        before: list[type[Stage]] = []
        for stage in stages:
            if isinstance(stage, Prune | Recover) and (wrong := _misplaced(type(stage), before)):
                raise ValueError(wrong)
            before.append(type(stage))
        return stages


LADDER = (
    Rung(name="int8", stages=(Quantize(),)),
    Rung(name="int8-fused", stages=(Quantize(), Fuse())),
    Rung(name="prune20-int8-fused", stages=(Prune(ratio="20%"), Quantize(), Fuse())),
    Rung(name="prune40-int8-fused", stages=(Prune(ratio="40%"), Quantize(), Fuse())),
)
"""The default climb, least risky first."""
ENGINE_LADDER = (Rung(name="fp16", stages=(Fuse(),)), *LADDER)
"""The same where an engine makes FP16 of what is not quantized."""


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """Everything a run is asked to do."""

    version: Literal[1] = 1
    seed: int = Field(default=0, ge=0)
    shapes: dict[str, Shape] = {}
    data: Data = Data()
    target: str = Field(
        default=schemes.AUTO,
        description="The kind of machine that the model is for, by the name of its INT8 scheme; auto: this one.",
        json_schema_extra={"enum": [schemes.AUTO, *(scheme.name for scheme in schemes.SCHEMES)]},
    )
    engine: Engine = Auto()
    custom_ops: tuple[FilePath, ...] = Field(
        default=(),
        description="Libraries of custom operators, loaded into every session and kept beside artifacts.",
    )
    load: Load = Closed()
    others: tuple[At, ...] = Field(default=(), description="Further batch sizes and shapes that are measured.")
    rungs: tuple[Rung, ...] = Field(default=LADDER, min_length=1)
    gates: tuple[Gate, ...] = Field(default=(Accuracy(max_drop="1%"),), min_length=1)
    baseline: Champion | None = Field(
        default=None, description="A registered version, such as models:/name@champion, that no rung may be worse than."
    )
    proved_on: str | None = Field(
        default=None,
        min_length=1,
        description="The CPU that latency has to be shown on, as `compress doctor` names it; * stands for any text.",
    )
    limits: Limits = Limits()
    registry: Registry = Registry()

    @field_validator("version", mode="before")
    @classmethod
    def _no_truth(cls, version: object) -> object:
        """Refuse `yes`, which Python takes for 1."""
        if isinstance(version, bool):
            raise ValueError(f"expected 1, found {version}")  # noqa: TRY004 - pydantic reports this kind
        return version

    @field_validator("rungs")
    @classmethod
    def _names_differ(cls, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
        names = [rung.name for rung in rungs]
        if twice := next((n for n in names if names.count(n) > 1 or n == BASELINE), None):
            raise ValueError(f"expected names that differ from each other and from {BASELINE}, found {twice!r}")
        return rungs

    @field_validator("target")
    @classmethod
    def _is_known(cls, target: str) -> str:
        if target != schemes.AUTO and schemes.by_name(target) is None:
            known = ", ".join([schemes.AUTO, *(scheme.name for scheme in schemes.SCHEMES)])
            raise ValueError(f"expected one of {known}, found {target!r}")
        return target

    @model_validator(mode="after")
    def _gates_differ(self) -> Self:
        if sum(isinstance(gate, Accuracy) for gate in self.gates) > 1:
            raise ValueError("expected at most one accuracy gate")
        names = [judged(gate) for gate in self.gates]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"expected gates that judge different things, found two for {twice}")
        return self


def default(sla: Latency | None = None) -> Recipe:
    """Give the recipe behind `--sla`: the whole ladder, the latency gate, and a drop of at most 1 %."""
    gates = (Accuracy(max_drop="1%"),)
    return Recipe(gates=(sla, *gates) if sla else gates)


def judged(gate: Gate) -> str:
    """Name what a gate judges, as its verdict does: the same for two gates that could contradict each other."""
    settings = gate.model_dump(by_alias=True, exclude_none=True)
    percentile = next((f" {name}" for name in PERCENTILES if isinstance(gate, Latency) and name in settings), "")
    at: At | None = getattr(gate, "at", None)
    return f"{key(type(gate))}{percentile}" + (f" at {at.name()}" if at else "")
