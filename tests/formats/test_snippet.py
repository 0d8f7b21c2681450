from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, save

from compressor import runtime
from compressor.engines.tensorrt import record
from compressor.errors import MachineError
from compressor.formats.snippet import snippet
from compressor.records import Artifact, File
from compressor.runtime.session import Provider

ASK = """
import importlib.util, sys
import numpy as np
spec = importlib.util.spec_from_file_location("load", sys.argv[1])
load = importlib.util.module_from_spec(spec)
spec.loader.exec_module(load)
found = load.session.get_session_options()
print(found.intra_op_num_threads, found.inter_op_num_threads)
print(found.get_session_config_entry("session.intra_op.allow_spinning"), *load.session.get_providers())
print(*load.session.run(None, {"x": np.array([2.0, 3.0], np.float32)})[0])
"""


def _write_script(folder: Path, name: str, options: dict[str, str]) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / name)
    script = folder / "load.py"
    artifact = Artifact("onnxruntime", "cpu", (File(f"int8/{name}", "", 0), File("int8/other", "", 0)), 0.0, options)
    script.write_text(snippet(artifact), encoding="utf-8")
    return script


def _run(*arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd="/")
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_script_loads_the_model_with_the_options_that_were_measured(tmp_path: Path) -> None:
    options = {
        "intra_op_num_threads": "2",
        "inter_op_num_threads": "1",
        "session.intra_op.allow_spinning": "0",
        "providers": "CPUExecutionProvider",
    }
    script = _write_script(tmp_path, "net.onnx", options)
    assert _run("-c", ASK, str(script)) == ["2 1", "0 CPUExecutionProvider", "4.0 6.0"]


@pytest.mark.parametrize("name", ['it\'s """ {0}.onnx', "back\\slash.onnx", "ä.onnx"])
def test_a_strange_file_name_does_no_harm(tmp_path: Path, name: str) -> None:
    assert _run(str(_write_script(tmp_path, name, {}))) == ["x tensor(float) [2]"]


def test_the_script_needs_onnxruntime_only(tmp_path: Path) -> None:
    text = _write_script(tmp_path, "net.onnx", {}).read_text()
    imports = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    assert imports == ["import os", "from pathlib import Path", "import onnxruntime as ort"]


def _refused(script: Path) -> str:
    """Give the last line that a script leaves on stderr."""
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_is_left_out_is_an_error(tmp_path: Path, provider: Provider) -> None:
    options = runtime.options(1, spinning=False, provider=provider)
    first = options["providers"].split(",")[0]
    if first in onnxruntime.get_available_providers():
        pytest.skip(f"this ONNX Runtime has {first}")
    said = _refused(_write_script(tmp_path, "net.onnx", options))
    assert said.startswith(f"RuntimeError: {first} is left out by ONNX Runtime, which takes CPUExecutionProvider: ")


def test_a_provider_that_runs_no_node_is_an_error(tmp_path: Path) -> None:
    azure = "AzureExecutionProvider"  # it is installed, for remote models only
    if azure not in onnxruntime.get_available_providers():
        pytest.skip(f"this ONNX Runtime has no {azure}")
    said = _refused(_write_script(tmp_path, "net.onnx", {"providers": f"{azure},CPUExecutionProvider"}))
    assert said.startswith(f"RuntimeError: {azure} runs no node of the model")


def test_a_plugin_without_its_driver_is_an_error(tmp_path: Path) -> None:
    """Really registered, where it is installed."""
    pytest.importorskip("onnxruntime_ep_nv_tensorrt_rtx", reason="TensorRT-RTX's plugin is not installed")
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has an NVIDIA GPU")
    options = runtime.options(1, spinning=False, provider="tensorrt-rtx")
    assert "libonnxruntime_providers_nv_tensorrt_rtx" in _refused(_write_script(tmp_path, "net.onnx", options))


class Pretended:
    """ONNX Runtime on a machine whose GPU runs every node; `asked` holds what it is called with."""

    intra_op_num_threads = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, devices: tuple[str, ...] = ()) -> None:
        self.asked: dict[str, Any] = {}
        self.devices = list(devices)
        self.found: list[str] = []
        monkeypatch.setattr(onnxruntime, "InferenceSession", self.open)
        monkeypatch.setattr(onnxruntime, "SessionOptions", lambda: self)
        monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: self.asked.update(preloaded=True))
        monkeypatch.setattr(onnxruntime, "register_execution_provider_library", self.register)
        monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [SimpleNamespace(ep_name=n) for n in self.found])
        plugin = SimpleNamespace(get_library_path=lambda: "plugin.so")
        monkeypatch.setitem(sys.modules, "onnxruntime_ep_nv_tensorrt_rtx", plugin)

    def register(self, name: str, path: str) -> None:
        assert "registered" not in self.asked
        self.asked["registered"] = (name, path)
        self.found = self.devices

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.asked[name] = value

    def add_provider_for_devices(self, devices: list[Any], options: dict[str, str]) -> None:
        self.asked["devices"] = ([device.ep_name for device in devices], options)

    def open(self, path: Path, options: Any, **keywords: Any) -> Any:
        assert options is self
        names = keywords.get("providers") or [*self.asked["devices"][0], "CPUExecutionProvider"]
        self.asked |= {"name": path.name, **keywords}
        parts = [SimpleNamespace(ep_name=names[0])]
        return SimpleNamespace(get_providers=lambda: names, get_provider_graph_assignment_info=lambda: parts)


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_session_on_a_gpu_falls_back_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: Provider
) -> None:
    options = runtime.options(3, spinning=False, provider=provider)
    script = _write_script(tmp_path, "net.onnx", options)
    pretended = Pretended(monkeypatch)
    _loaded(script)
    assert pretended.asked == {
        "preloaded": True,
        "name": "net.onnx",
        "providers": options["providers"].split(","),
        "enable_fallback": 0,
        "session.intra_op.allow_spinning": "0",
        "session.record_ep_graph_assignment_info": "1",
    }
    assert pretended.intra_op_num_threads == 3


RTX = "NvTensorRTRTXExecutionProvider"


def test_a_plugin_is_registered_once_and_given_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _write_script(tmp_path, "net.onnx", runtime.options(1, spinning=False, provider="tensorrt-rtx"))
    pretended = Pretended(monkeypatch, devices=("CPUExecutionProvider", RTX, RTX))
    for _ in range(2):
        _loaded(script)
        assert pretended.asked["registered"] == (RTX, "plugin.so")
        assert pretended.asked["devices"] == ([RTX], {})
        assert pretended.asked["enable_fallback"] == 0
        assert "providers" not in pretended.asked


def test_a_plugin_that_finds_no_device_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _write_script(tmp_path, "net.onnx", runtime.options(1, spinning=False, provider="tensorrt-rtx"))
    Pretended(monkeypatch, devices=("CPUExecutionProvider",))
    with pytest.raises(RuntimeError, match=rf"\A{RTX}: no device of this machine can run it"):
        _loaded(script)


@pytest.mark.parametrize("provider", ["cuda", "tensorrt", "tensorrt-rtx"])
def test_no_script_needs_more_than_onnxruntime_and_its_plugin(tmp_path: Path, provider: Provider) -> None:
    text = _write_script(tmp_path, "net.onnx", runtime.options(1, spinning=False, provider=provider)).read_text()
    imports = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    plugin = ["import onnxruntime_ep_nv_tensorrt_rtx as plugin"] if provider == "tensorrt-rtx" else []
    assert imports == ["import os", "from pathlib import Path", "import onnxruntime as ort", *plugin]


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """Write the script of two engines; gives its path."""
    tensor = record.Bound(name="x", dtype="float32", shape=(-1, 2))
    plain = dict.fromkeys(("sha256", "version", "precision", "computes", "onnx_sha256"), "")
    several = dict.fromkeys(("devices", "capabilities", "profiles", "flags", "outputs"), ())
    listed = tuple(
        record.Record(
            file=f"model.{device}.engine",
            provider="tensorrt",
            size_bytes=0,
            build_s=0,
            inputs=(tensor,),
            **plain,
            **several,
        )
        for device in ("a10g", "l4")
    )
    (tmp_path / "engine.json").write_text(record.write(record.Records(engines=listed)))
    artifacts = [
        Artifact(engine, "a10g", (File("int8/model.a10g.engine", "", 0),), 0.0, {})
        for engine in ("tensorrt", "tensorrt-rtx")
    ]
    first, second = map(snippet, artifacts)
    assert first == second
    (tmp_path / "load.py").write_text(first, encoding="utf-8")
    return tmp_path / "load.py"


def _loaded(script: Path) -> Any:
    spec = importlib.util.spec_from_file_location("load", script)
    assert spec
    assert spec.loader
    load = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load)
    return load


def test_the_script_of_engines_opens_the_one_that_fits_this_gpu(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_file(path: Path) -> Any:
        if path != engines.with_name("model.l4.engine"):
            raise MachineError(f"{path.name}: another GPU")
        return lambda feeds: {"y": feeds["x"] * 2}

    monkeypatch.setattr("compressor.engines.tensorrt.open_file", open_file)
    np.testing.assert_array_equal(_loaded(engines).session({"x": np.float32([[1, 2]])})["y"], [[2, 4]])


def test_the_script_of_engines_says_why_none_fits(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_file(path: Path) -> Any:
        raise MachineError(f"{path.name}: another GPU")

    monkeypatch.setattr("compressor.engines.tensorrt.open_file", open_file)
    with pytest.raises(MachineError, match=r"\Amodel\.a10g\.engine: another GPU; model\.l4\.engine: another GPU\Z"):
        _loaded(engines)
