"""TensorRT-RTX under the name of its sibling, which builds without a GPU; what needs one answers as $TOLD says."""

# ruff: noqa: E402, F403, N802, ARG002 - the libraries are loaded first; names and arguments are NVIDIA's

from __future__ import annotations

import ctypes
import json
import os
import warnings
from importlib import metadata
from typing import Any

warnings.simplefilter("ignore", DeprecationWarning)  # TensorRT-RTX 1.7.1 keeps no timings
plugin = metadata.distribution("onnxruntime-ep-nv-tensorrt-rtx-cu13")
for start in ("libcudart.so", "libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so"):
    found = next(file for file in plugin.files or () if file.name.startswith(start))
    ctypes.CDLL(str(plugin.locate_file(found)), mode=ctypes.RTLD_GLOBAL)

import tensorrt_rtx_bindings as rtx
from tensorrt_rtx_bindings import *

told = json.loads(os.environ["TOLD"])
__version__ = told["version"]


class Builder(rtx.Builder):
    def create_network(self, flags: int) -> Any:
        assert flags == told["network_flags"], flags
        return super().create_network(flags)

    def create_builder_config(self) -> Any:
        config = super().create_builder_config()
        config.num_compute_capabilities = 1
        config.set_compute_capability(rtx.ComputeCapability.SM86, 0)
        return config

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        if config.get_flag(rtx.BuilderFlag.REFIT):  # TensorRT-RTX 1.7.1 asks the GPU for it
            config.clear_flag(rtx.BuilderFlag.REFIT)
            print("to be refitted")
        print("level", config.builder_optimization_level)
        print("workspace", config.get_memory_pool_limit(rtx.MemoryPoolType.WORKSPACE))
        return super().build_serialized_network(network, config)


class Engine:
    def __init__(self, engine: dict[str, Any]) -> None:
        self.bounds = engine["inputs"] | engine["outputs"]
        self.engine = engine
        self.num_io_tensors = len(self.bounds)
        self.num_optimization_profiles = len(engine["profiles"])

    def get_tensor_name(self, index: int) -> Any:
        return list(self.bounds)[index]

    def get_tensor_mode(self, name: str) -> Any:
        return rtx.TensorIOMode.INPUT if name in self.engine["inputs"] else rtx.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return getattr(rtx.DataType, self.bounds[name][0])

    def get_tensor_shape(self, name: str) -> Any:
        return tuple(self.bounds[name][1])

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> Any:
        return [tuple(shape) for shape in self.engine["profiles"][profile_index][name]]


class Runtime:
    def __init__(self, logger: Any) -> None:
        assert isinstance(logger, rtx.ILogger)

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        assert isinstance(serialized_engine, bytes)
        return Engine(told["engine"]) if told["engine"] else None


surface = {name for name in dir(Engine) if not name.startswith("_")} | {"num_io_tensors", "num_optimization_profiles"}
assert surface <= set(dir(rtx.ICudaEngine))
assert hasattr(rtx.Runtime, "deserialize_cuda_engine")


class Cuda:
    """As `libcuda` answers: every call gives an error number, results go to where pointers point."""

    def cuInit(self, flags: int) -> Any:
        return told["cuda_error"]

    def cuDeviceGet(self, device: Any, ordinal: int) -> Any:
        device._obj.value = 7
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> Any:
        assert device.value == 7
        name.value = told["gpu"]["name"].encode()
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> Any:
        assert device.value == 7
        value._obj.value = told["gpu"]["capability"][{75: 0, 76: 1}[attribute]]
        return 0


ctypes.CDLL = lambda name: {"libcuda.so.1": Cuda()}[name]
