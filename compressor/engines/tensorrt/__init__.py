"""TensorRT: a typed graph compiled for NVIDIA GPUs, one file for the devices that can share it.

`profiles` says which shapes an engine takes, `check` what would be refused, `typed` makes precision types of the graph,
`provider` finds who can build here, `engines` and `build` build, `record` is what stands beside an engine, `kit`
finishes the job on another machine, and `execution`, above the driver of `cuda`, runs an engine where a GPU is.
A setting is a field of `Tensorrt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainSerializer, field_validator

from compressor import machine
from compressor.engines.onnxruntime import Onnxruntime
from compressor.engines.tensorrt import engines, profiles, provider, record, typed
from compressor.engines.tensorrt.engines import Wanted
from compressor.engines.tensorrt.profiles import Profile
from compressor.errors import InputError, MachineError
from compressor.fleet import CURRENT, DEVICES, by_name
from compressor.records import Artifact, Model, Session, Shapes, Tensor, Work
from compressor.samples import Samples
from compressor.units import Bytes

_ELSEWHERE = "name devices that are not here, for which engines are built and not run"
FilePath = Annotated[Path, PlainSerializer(str, return_type=str)]


class Tensorrt(BaseModel, frozen=True, extra="forbid"):
    """Engines for NVIDIA GPUs, built by TensorRT where such a GPU is and by TensorRT-RTX anywhere.

    Where none of the devices is here, engines are built and not run: their graph is scored on the CPU, and latency is
    unknown, unless `measure: cpu-proxy` asks for that of the graph on the CPU, which is another thing and called so.
    """

    devices: tuple[str, ...] = Field(default=(CURRENT,), min_length=1)
    """Names of GPUs such as t4, a10g, l4 and a100; current: the one in this machine."""
    precision: typed.Precision = "auto"
    """Of what no Q/DQ pair stands around; those stay INT8. int8: as the graph has it, and something must be quantized;
    auto: int8 where something is, else fp16."""
    profiles: tuple[Profile, ...] = ()
    """By open dimension, or by input: least, optimal and largest size. None: derived, batch 1/8/32."""
    workspace: Bytes | None = Field(default=None, gt=0, lt=2**63)
    """Memory that a layer may use beside its tensors; unset: all that the device has."""
    timing_cache: FilePath | None = None
    """A file in which the builder keeps what it measured, to be quicker next time."""
    refit: bool = False
    """Weights can be replaced without building anew."""
    optimization_level: int = Field(default=3, ge=0, le=5)
    """How long the builder searches."""
    cuda_graph: bool = False
    """Launch all kernels of a shape at once."""
    measure: Literal["device", "cpu-proxy"] = "device"

    @field_validator("devices")
    @classmethod
    def _are_known(cls, devices: tuple[str, ...]) -> tuple[str, ...]:
        lower = tuple(dict.fromkeys(name.lower() for name in devices))
        for name in lower:
            if name != CURRENT and by_name(name) is None:
                known = ", ".join([CURRENT, *(device.name for device in DEVICES)])
                raise ValueError(f"expected one of {known}, found {name!r}")
        return lower

    @field_validator("precision", mode="before")
    @classmethod
    def _has_pairs(cls, precision: Any) -> Any:
        if precision == "fp8":
            raise ValueError(
                "fp8 needs Q/DQ pairs of FP8, which `quantize` does not make: expected auto, int8, fp16 or fp32"
            )
        return precision

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def threads(self) -> int | None:
        """Threads of a session on the CPU: there is none."""
        return None

    @property
    def spinning(self) -> bool:
        """Whether threads of a session on the CPU spin: there are none."""
        return False

    def resolve(self, _cpus_usable: int) -> Tensorrt:
        """Give the same engine."""
        return self

    def check(self) -> None:
        """Make sure that somebody can build for these devices here.

        Raises:
            InputError: The settings ask for what no builder does.
            MachineError: Nobody can.
        """
        self.check_settings(provider.chosen(self.devices))
        if self.is_here() and self.measure == "device" and not provider.is_installed("pycuda"):
            raise MachineError(f"engines run through pycuda, which is not installed: install it, or {_ELSEWHERE}")

    def check_settings(self, builder: record.Provider) -> None:
        """Make sure that a builder does what the settings ask for.

        Raises:
            InputError: It does not, or the file of `timing_cache` can be none.
        """
        if self.refit and builder == "tensorrt-rtx" and machine.gpu_capability() is None:
            raise InputError(
                "engine.tensorrt.refit: TensorRT-RTX builds such engines only where a GPU is; leave it out"
            )
        if (cache := self.timing_cache) and (cache.is_dir() or not cache.parent.is_dir()):
            raise InputError(f"engine.tensorrt.timing_cache: expected a file in a folder that is there, found {cache}")

    def located(self, folder: Path) -> Tensorrt:
        """Give the same engine, its file of timings looked for in a folder."""
        return self.model_copy(update={"timing_cache": self.timing_cache and folder / self.timing_cache})

    def fitted(self, inputs: Sequence[Tensor], shapes: Sequence[Shapes]) -> Tensorrt:
        """Give the same engine with profiles by input, each checked against the model and what is measured.

        Raises:
            InputError: A profile does not fit.
        """
        return self.model_copy(update={"profiles": profiles.settled(self.profiles, inputs, shapes)})

    def derived(self, asked: object) -> tuple[str, ...]:
        """Say which profiles nobody asked for, given what somebody asked for."""
        if not self.profiles or not isinstance(asked, Tensorrt) or asked.profiles:
            return ()
        ranges = (f"{name} {profiles.write(range_)}" for name, range_ in self.profiles[0].items())
        return (f"no profile was asked for; derived: {', '.join(ranges)} (least/optimal/largest)",)

    def plain(self, cpus_usable: int) -> Tensorrt | Onnxruntime:
        """Give the engine of the original that all is held against: the same in FP32, or the CPU where no device is."""
        if self.is_here():  # on Turing, TensorRT-RTX has no FP32 products
            half = machine.gpu_capability() == engines.TURING and not provider.is_installed("tensorrt")
            return self.model_copy(update={"precision": "fp16" if half else "fp32", "devices": (CURRENT,)})
        return Onnxruntime().resolve(cpus_usable)

    def is_here(self) -> bool:
        """Tell whether the GPU of this machine is as every device is: of others it would say nothing."""
        here, wanted = machine.gpu_capability(), provider.capabilities(self.devices)
        return here is not None and all(wanted.get(name) == here for name in self.devices)

    def is_timed(self) -> bool:
        """Tell whether latency is measured: on a device, or on the CPU because that is asked for."""
        return self.measure == "cpu-proxy" or self.is_here()

    @property
    def stand_in(self) -> str:
        """What runs where no device is."""
        return f"the graph on the CPU, not {', '.join(self.devices)}"

    def warnings(self) -> tuple[str, ...]:
        """Say what a reader of numbers must know."""
        named = ", ".join(self.devices)
        if self.is_here():
            return () if self.devices == (CURRENT,) else (f"measured on {machine.gpu()}, which stands for {named}",)
        built = f"no GPU is here for {named}: engines are built and not run, and scores are of their graphs on the CPU"
        proxy = f"cpu-proxy: times are of graphs on this CPU and say little of {named}"
        return (built, proxy) if self.measure == "cpu-proxy" else (built,)

    def build(self, model: Model, folder: Path, run: Path, samples: Samples) -> Work[tuple[Artifact, ...]]:
        """Write the typed graph, an engine for each group of devices, and what they are.

        Args:
            model: What to build.
            folder: Where, a subfolder of the run's.
            run: The run's folder.
            samples: They tell which values FP16 cannot hold.

        Raises:
            RungError: The graph cannot be typed, parsed or built.
            MachineError: Nobody can build here.
        """
        return (yield from engines.made(self._wanted(), model, (folder, run), samples))

    def kit(self, model: Model, folder: Path, name: str, samples: Samples) -> Work[Path]:
        """Write the folder that finishes the build on a machine with NVIDIA's own TensorRT; give it.

        Raises:
            RungError: The graph cannot be typed.
        """
        return (yield from engines.kit(self._wanted(), model, (folder, name), samples))

    def open(self, artifact: Artifact, run: Path) -> Session:
        """Load an engine on the GPU that it was built for.

        Raises:
            MachineError: This machine has no such GPU, or another version of the provider.
            InputError: The file is not the one that was built.
            RungError: The engine does not load.
        """
        return open_file(run / artifact.files[0].path)

    def fitting(self, artifacts: Sequence[Artifact]) -> Artifact | None:
        """Give the first engine that runs on a GPU of this machine."""
        here = machine.gpu_capability() if self.is_here() else None
        text = f"{here[0]}.{here[1]}" if here else ""
        return next((one for one in artifacts if text in one.options["capabilities"].split(",") and text), None)

    def proxy(self, artifact: Artifact) -> tuple[Onnxruntime, Artifact]:
        """Give the typed graph of an engine as ONNX Runtime opens it, to be scored, and measured if that is asked."""
        engine = Onnxruntime().resolve(machine.cpus_usable())
        onnx = tuple(file for file in artifact.files if not file.path.endswith((record.FILE, ".engine")))
        return engine, Artifact("onnxruntime", "cpu", onnx, 0.0, engine.options())

    def _wanted(self) -> Wanted:
        return Wanted(
            devices=self.devices,
            precision=self.precision,
            profiles=self.profiles,
            workspace_bytes=self.workspace,
            timing_cache=self.timing_cache,
            refit=self.refit,
            optimization_level=self.optimization_level,
            cuda_graph=self.cuda_graph,
        )


def open_folder(folder: Path) -> Session:
    """Load the engine of a folder that runs on the GPU of this machine.

    Raises:
        MachineError: None does; the sentence says why of each.
        InputError: `engine.json` is missing, or a file is another one.
        RungError: The engine does not load.
    """
    reasons: dict[str, None] = {}
    for one in record.read(folder / record.FILE).engines:
        try:
            return open_file(folder / one.file)
        except MachineError as error:
            reasons[str(error)] = None
    raise MachineError("; ".join(reasons) or f"{folder / record.FILE}: tells of no engine; build it again")


def open_file(path: Path) -> Session:
    """Load an engine file by what `engine.json` beside it says.

    Raises:
        MachineError: This machine has no GPU that it was built for, or another version of the provider.
        InputError: `engine.json` is missing or names no such file, or the file is another one.
        RungError: The engine does not load.
    """
    from compressor.engines.tensorrt import cuda, execution

    found = record.of(path)
    return execution.open_engine(path, found, cuda.driver(found), cuda_graph=found.cuda_graph)
