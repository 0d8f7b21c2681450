from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from compressor.engines.tensorrt import record
from compressor.errors import MachineError
from compressor.formats.snippet import snippet
from compressor.records import Artifact, File

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
