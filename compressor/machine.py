"""What a number depends on besides the model: CPUs, instruction sets, memory, load, GPU and package versions.

Add a fact as a function here; it asks the operating system or package metadata and imports no package to find out. What
INT8 form suits which machine stands in `schemes`.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path, PurePosixPath

from compressor.records import Environment

_ROOT = Path("/")
_ISA = (
    *("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
_EXTRAS = {  # the optional dependencies of pyproject.toml
    "metrics": ("jiwer", "pycocotools"),
    "torch": ("torch", "onnxscript", "safetensors"),
    "tensorrt": ("tensorrt", "pycuda"),
    "tensorrt-rtx": ("tensorrt-rtx-cu13-bindings", "onnxruntime-ep-nv-tensorrt-rtx-cu13"),
    "openvino": ("openvino",),
}
_PACKAGES = (
    *("compressor", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu", "onnxsim", "nncf", "mlflow"),
    *(package for packages in _EXTRAS.values() for package in packages),
)
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")  # cgroup version 2, version 1
_NVIDIA_SMI_SECONDS = 20


def environment(threads: int, *, spinning: bool, saturates: bool) -> Environment:
    """Describe this machine as it is now, beside how the session was set up and what the saturation probe found."""
    return Environment(
        machine=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpu_name(),
        isa=isa(),
        cpus_usable=cpus_usable(),
        threads=threads,
        spinning=spinning,
        load=load_average(),
        versions=versions(),
        saturates=saturates,
    )


def cpus_usable(root: Path = _ROOT) -> int:
    """Count the CPUs this process may use: its affinity, or fewer where a cgroup's quota, rounded up, is less."""
    return max(1, min([_affinity(), *map(math.ceil, _cpu_quotas(root))]))


def memory_bytes(root: Path = _ROOT) -> int:
    """Give the memory this process may use: what the machine has, or less where a cgroup limits it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_words(group / name) for group in _cgroups(root, "memory") for name in _MEMORY_LIMITS]
    return min([physical, *(int(limit) for limit, *_ in filter(None, limits) if limit != "max")])


def isa(root: Path = _ROOT) -> tuple[str, ...]:
    """List this CPU's instruction sets that decide how fast and how exact kernels are, in a fixed order."""
    found = {*_cpuinfo(root, "flags").split(), *_cpuinfo(root, "Features").split()}
    return tuple(name for name in _ISA if name in found)


def cpu_name(root: Path = _ROOT) -> str:
    """Give the CPU's name as it names itself, or its architecture."""
    return _cpuinfo(root, "model name") or platform.processor() or platform.machine()


def is_named(cpu: str, pattern: str) -> bool:
    """Tell whether a CPU's name is the one that is asked for; * stands for any text, and case does not matter."""
    literal = re.sub(r"([\[\]?])", r"[\1]", pattern.casefold())  # only * is special
    return fnmatchcase(cpu.casefold(), literal)


def load_average() -> float | None:
    """Give the one-minute load average, or None where the system keeps none."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def gpu() -> str | None:
    """Name the first NVIDIA GPU whose driver answers, or None."""
    return _asked("name")


def gpu_capability() -> tuple[int, int] | None:
    """Give the compute capability of the first NVIDIA GPU whose driver answers, major and minor, or None."""
    major, _, minor = (_asked("compute_cap") or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def versions() -> Mapping[str, str]:
    """Give the version of each installed package that numbers depend on."""
    found = {package: _version(package) for package in _PACKAGES}
    return {package: version for package, version in found.items() if version is not None}


def extras() -> Mapping[str, bool]:
    """Say of each optional extra whether all of its packages are installed."""
    return {extra: all(map(_version, packages)) for extra, packages in _EXTRAS.items()}


def _asked(what: str) -> str | None:
    """Ask the driver of the first NVIDIA GPU."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None  # the command is installed, but no driver answers it
    return next(iter(answer.stdout.splitlines()), None)


def _affinity() -> int:
    # macOS has no affinity: every CPU is usable
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_quotas(root: Path) -> Iterator[float]:
    for group in _cgroups(root, "cpu"):
        version_2 = _words(group / "cpu.max")
        version_1 = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        for quota, period in filter(None, (version_2, version_1)):
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)


def _cgroups(root: Path, controller: str) -> list[Path]:
    """Find the folders that may limit this process: its cgroups of either version and all above them.

    Inside a container the names can be the host's while only the innermost group is mounted, so any may be missing.
    Source: cgroups(7).
    """
    mount = root / "sys/fs/cgroup"
    folders: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = PurePosixPath(name.lstrip("/"))
        folders += [mount / (controller if controllers else "") / part for part in (group, *group.parents)]
    return folders


def _cpuinfo(root: Path, field: str) -> str:
    """Give a field of the first CPU, or the empty text."""
    fields = (line.partition(":") for line in _text(root / "proc/cpuinfo").splitlines())
    return next((value.strip() for name, _, value in fields if name.strip() == field), "")


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
