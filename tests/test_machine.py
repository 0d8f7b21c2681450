"""Machine facts, against folders laid out as the kernel lays them out."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import pytest

from compressor import machine

Lay = Callable[[Mapping[str, str]], Path]
GIB = 2**30


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)


@pytest.fixture
def sixteen_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16 * GIB // 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        pytest.param({}, 8, id="no cgroup: the affinity"),
        pytest.param({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8, id="no quota"),
        pytest.param({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2, id="rounded up"),
        pytest.param({"sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1, id="never less than one"),
        pytest.param({"sys/fs/cgroup/cpu.max": "1600000 100000\n"}, 8, id="never more than the affinity"),
        pytest.param({"sys/fs/cgroup/pod/web/cpu.max": "400000 100000\n"}, 4, id="its own group"),
        pytest.param(
            {"sys/fs/cgroup/pod/cpu.max": "300000 100000\n", "sys/fs/cgroup/pod/web/cpu.max": "max 100000\n"},
            3,
            id="a group above it",
        ),
        pytest.param({"sys/fs/cgroup/pod/other/cpu.max": "100000 100000\n"}, 8, id="not a group beside it"),
    ],
)
def test_cpus_usable_in_cgroup_version_2(lay: Lay, files: Mapping[str, str], cpus: int) -> None:
    assert machine.cpus_usable(lay({"proc/self/cgroup": "0::/pod/web\n", **files})) == cpus


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("250000", 5), ("50000", 1)])
def test_cpus_usable_in_cgroup_version_1(lay: Lay, quota: str, cpus: int) -> None:
    root = lay(
        {
            "proc/self/cgroup": "5:memory:/else\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": f"{quota}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000\n",
        }
    )
    assert machine.cpus_usable(root) == cpus


def test_cpus_usable_are_those_of_the_affinity_not_of_the_machine(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert machine.cpus_usable(lay({})) == 1


@pytest.mark.usefixtures("sixteen_gib")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 16 * GIB, id="physical"),
        pytest.param({"sys/fs/cgroup/memory.max": "max\n"}, 16 * GIB, id="no limit"),
        pytest.param({"sys/fs/cgroup/app/memory.max": f"{2 * GIB}\n"}, 2 * GIB, id="version 2"),
        pytest.param({"sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{GIB}\n"}, GIB, id="version 1"),
        pytest.param(
            {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 16 * GIB, id="version 1, none"
        ),
    ],
)
def test_memory_is_the_least_of_physical_and_limits(lay: Lay, files: Mapping[str, str], expected: int) -> None:
    assert machine.memory_bytes(lay({"proc/self/cgroup": "4:memory:/pod\n0::/app\n", **files})) == expected


def test_isa_of_x86_keeps_one_order_and_drops_what_does_not_matter(lay: Lay) -> None:
    cpu = (
        "processor\t: {}\nmodel name\t: Some CPU @ 2.0GHz: 8\nflags\t\t: fpu avx512_vnni sse2 fma avx2 avx amx_int8\n\n"
    )
    root = lay({"proc/cpuinfo": cpu.format(0) + cpu.format(1)})
    assert machine.isa(root) == ("avx", "avx2", "fma", "avx512_vnni", "amx_int8")
    assert machine.cpu_name(root) == "Some CPU @ 2.0GHz: 8"


def test_isa_of_arm(lay: Lay) -> None:
    root = lay({"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd sve i8mm asimddp\nCPU part\t: 0xd40\n"})
    assert machine.isa(root) == ("asimd", "asimddp", "i8mm", "sve")


def test_a_machine_without_cpuinfo_has_a_name_and_no_isa(lay: Lay) -> None:
    assert machine.isa(lay({})) == ()
    assert machine.cpu_name(lay({}))


def test_no_load_average_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", refuse)
    assert machine.load_average() is None


def test_gpu_is_none_without_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpu() is None


@pytest.mark.parametrize(
    ("script", "name"),
    [
        pytest.param("echo 'NVIDIA H200'; echo 'NVIDIA L4'", "NVIDIA H200", id="the first"),
        pytest.param("echo 'no driver'; exit 9", None, id="no driver"),
        pytest.param("exec sleep 30", None, id="hangs"),
        pytest.param("true", None, id="says nothing"),
    ],
)
def test_gpu_is_what_the_driver_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str | None
) -> None:
    _install_driver(tmp_path, monkeypatch, script)
    assert machine.gpu() == name


def test_gpu_capability_is_none_without_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpu_capability() is None


@pytest.mark.parametrize(
    ("script", "capability"),
    [
        pytest.param("echo 8.6; echo 9.0", (8, 6), id="the first"),
        pytest.param("echo 12.0", (12, 0), id="two digits"),
        pytest.param('[ "$1 $2" = "--query-gpu=compute_cap --format=csv,noheader" ] && echo 7.5', (7, 5), id="asked"),
        pytest.param("echo '[N/A]'", None, id="not known to it"),
        pytest.param("echo N/A", None, id="N/A"),
        pytest.param("echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2", None, id="an old driver"),
        pytest.param("echo 9", None, id="no minor number"),
        pytest.param("echo 'no driver'; exit 9", None, id="no driver"),
        pytest.param("exec sleep 30", None, id="hangs"),
        pytest.param("true", None, id="says nothing"),
    ],
)
def test_gpu_capability_is_what_the_driver_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, capability: tuple[int, int] | None
) -> None:
    _install_driver(tmp_path, monkeypatch, script)
    assert machine.gpu_capability() == capability


def test_versions_are_those_of_installed_packages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, {"onnx": "1.2.3", "torch": "4.5", "unrelated": "6"})
    assert machine.versions() == {"onnx": "1.2.3", "torch": "4.5"}


def test_an_extra_needs_all_of_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, {"openvino": "1", "tensorrt": "2"})
    assert machine.extras() == {
        "metrics": False,
        "torch": False,
        "tensorrt": False,
        "tensorrt-rtx": False,
        "openvino": True,
    }


def test_extras_are_those_of_the_project_file() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    declared = {
        extra: tuple(requirement.partition("==")[0].partition(">=")[0] for requirement in requirements)
        for extra, requirements in project["optional-dependencies"].items()
    }
    assert declared == machine._EXTRAS


def test_the_environment_is_found_without_importing_a_vendor_package() -> None:
    script = (
        "import sys; from compressor import machine\n"
        "found = machine.environment(2, spinning=True, saturates=False)\n"
        "assert (found.threads, found.spinning, found.saturates) == (2, True, False), found\n"
        "assert found.cpus_usable >= 1 and found.versions['numpy'], found\n"
        "vendors = {'onnx', 'onnx_ir', 'onnxruntime', 'onnxsim', 'nncf', 'mlflow', 'torch', 'psutil'}\n"
        "loaded = vendors & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _install(monkeypatch: pytest.MonkeyPatch, packages: Mapping[str, str]) -> None:
    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(metadata, "version", version)


def _install_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(machine, "_NVIDIA_SMI_SECONDS", 0.5)
