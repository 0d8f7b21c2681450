from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from found import REPORT

from compressor import records as r
from compressor import registry, workspace
from compressor.engines.tensorrt import record
from compressor.errors import MachineError, PublishError
from compressor.formats.snippet import snippet

ROOT = Path(__file__).parents[2]

# mlflow 3.17 reads registered models with an option that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create mlflow's tables once: it costs seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("tables") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}", f"sqlite:///{path}").search_registered_models(max_results=1)
    return path


@pytest.fixture
def uri(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a registry, in a working folder of the test's own; forget afterwards what mlflow was given."""
    import mlflow

    shutil.copy(tables, tmp_path / "mlflow.db")
    (tmp_path / "working").mkdir()
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    yield f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri("")
    mlflow.set_registry_uri("")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder of a run whose rung holds two engines, of an ONNX model with external data."""
    run = tmp_path / "reports" / "net" / "20260304-050607"
    rung = run / "artifacts" / "int8"
    (rung / "weights").mkdir(parents=True)
    for name, text in {"report.json": '{"verdict": "pass"}', "report.md": "# net: pass\n", "recipe.yaml": "{}"}.items():
        (run / name).write_text(text)
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]> g (float[N,2] x, int64[1] ids) => (float[N,3] y, int64[1] same)
        { y = MatMul(x, w) same = Identity(ids) }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    onnx.save(proto, rung / "model.onnx", save_as_external_data=True, location="weights/w.bin", size_threshold=0)
    engines = []
    for device, capability in (("a10g", "8.6"), ("h100", "9.0")):
        (rung / f"model.{device}.engine").write_bytes(f"engine of {device}\n".encode() * 1000)
        engines.append(_record(rung / f"model.{device}.engine", device, capability))
    (rung / record.FILE).write_text(record.write(record.Records(engines=tuple(engines))))
    return run


def _record(path: Path, device: str, capability: str) -> record.Record:
    return record.Record(
        file=path.name,
        sha256=workspace.sha256(path),
        size_bytes=path.stat().st_size,
        provider="tensorrt",
        version="11.4.0.106",
        devices=(device,),
        capabilities=(capability,),
        precision="int8",
        computes="as the graph's types say",
        profiles=({"x": ((1, 2), (8, 2), (32, 2))},),
        inputs=(
            record.Bound(name="x", dtype="float32", shape=(-1, 2)),
            record.Bound(name="ids", dtype="int64", shape=(1,)),
        ),
        outputs=(record.Bound(name="y", dtype="float32", shape=(-1, 3)),),
        onnx_sha256="ab",
        flags=("TF32",),
        build_s=1.0,
    )


def _report(folder: Path, engine: str = "tensorrt") -> r.Report:
    shared = ("engine.json", "model.onnx", "weights/w.bin")
    artifacts = tuple(
        r.Artifact(
            engine,
            device,
            tuple(
                workspace.file(folder / "artifacts" / "int8" / name, folder)
                for name in (f"model.{device}.engine", *shared)
            ),
            1.0,
            {"version": "11.4.0.106"},
        )
        for device in ("a10g", "h100")
    )
    environment = replace(REPORT.environment, versions={"compressor": "0.1.0", "tensorrt": "10.1", "pycuda": "2026.1"})
    return replace(
        REPORT,
        verdict="pass",
        chosen="int8",
        baseline=r.Trial("baseline"),
        trials=(r.Trial("int8", artifacts=artifacts),),
        environment=environment,
        recipe={"registry": {"uri": None, "name": "served"}},
        started=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
    )


def _recorded(uri: str, report: r.Report, folder: Path, tmp_path: Path) -> Path:
    """Record a run, and give a folder with what its version holds."""
    from mlflow.artifacts import download_artifacts

    assert registry.record(uri, report, folder).version == "1"
    return Path(download_artifacts("models:/served/1", dst_path=str(tmp_path / "arrived")))


def test_a_version_holds_every_engine_and_its_source_byte_for_byte(uri: str, folder: Path, tmp_path: Path) -> None:
    arrived = _recorded(uri, _report(folder), folder, tmp_path)
    rung = folder / "artifacts" / "int8"
    files = [path.relative_to(rung) for path in rung.rglob("*") if path.is_file()]
    assert len(files) == 5
    for name in files:
        assert (arrived / name).read_bytes() == (rung / name).read_bytes()
    for name in ("report.json", "report.md"):
        assert (arrived / "extra_files" / name).read_bytes() == (folder / name).read_bytes()


def test_a_version_is_code_and_no_pickle(uri: str, folder: Path, tmp_path: Path) -> None:
    from mlflow.models import Model

    arrived = _recorded(uri, _report(folder), folder, tmp_path)
    assert not [path for path in arrived.rglob("*") if "pickle" in path.name or path.suffix == ".pkl"]
    model = Model.load(str(arrived))
    assert set(model.flavors) == {"python_function"}
    flavour = model.flavors["python_function"]
    assert flavour["model_code_path"] == "gpu_model.py"
    assert "python_model" not in flavour
    assert "pickle" not in (arrived / "MLmodel").read_text()
    assert "pickle" not in (arrived / "requirements.txt").read_text()
    assert [(spec.name, spec.type.name, spec.shape) for spec in model.signature.inputs] == [
        ("x", "float32", (-1, 2)),
        ("ids", "int64", (1,)),
    ]
    assert str(tmp_path) not in (arrived / "MLmodel").read_text().replace(str(tmp_path / "mlartifacts"), "")


@pytest.mark.parametrize(
    ("engine", "packages"),
    [
        ("tensorrt", {"tensorrt==11.4.0.106", "pycuda==2026.1"}),
        (
            "tensorrt-rtx",
            {"tensorrt-rtx-cu13-bindings==11.4.0.106", "onnxruntime-ep-nv-tensorrt-rtx-cu13", "pycuda==2026.1"},
        ),
    ],
)
def test_a_version_names_the_packages_that_serve_it(
    uri: str, folder: Path, tmp_path: Path, engine: str, packages: set[str]
) -> None:
    arrived = _recorded(uri, _report(folder, engine), folder, tmp_path)
    found = set((arrived / "requirements.txt").read_text().split())
    assert found == {"compressor==0.1.0", "mlflow", "numpy"} | packages


def test_a_version_tells_its_devices(uri: str, folder: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    _recorded(uri, _report(folder), folder, tmp_path)
    tags = MlflowClient(uri, uri).get_model_version("served", "1").tags
    rung = folder / "artifacts" / "int8"
    engines = [rung / "model.a10g.engine", rung / "model.h100.engine"]
    assert tags["compressor.device"] == "a10g, h100"
    assert tags["compressor.engine"] == "tensorrt"
    assert tags["compressor.sha256"] == ", ".join(map(workspace.sha256, engines))
    size_bytes = sum(path.stat().st_size for path in rung.rglob("*") if path.is_file())
    assert tags["compressor.size_bytes"] == str(size_bytes)


def test_an_engine_that_was_changed_since_is_not_registered(uri: str, folder: Path) -> None:
    report = _report(folder)
    (folder / "artifacts" / "int8" / "model.h100.engine").write_bytes(b"another")
    with pytest.raises(PublishError, match=r"artifacts/int8/model\.h100\.engine was not registered"):
        registry.record(uri, report, folder)


def test_a_machine_without_the_gpu_is_refused_with_a_sentence(uri: str, folder: Path, tmp_path: Path) -> None:
    """In a process of its own, as a server loads it."""
    arrived = _recorded(uri, _report(folder), folder, tmp_path)
    code = """
import sys, warnings
warnings.filterwarnings("ignore")
from mlflow.pyfunc import load_model
try:
    load_model(sys.argv[1])
except Exception as error:
    print(type(error).__module__, type(error).__name__)
    print(error)
"""
    command = [sys.executable, "-c", code, str(arrived)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    kind, *lines = done.stdout.splitlines()
    assert kind == "compressor.errors MachineError"
    assert len(lines) == 1
    assert "tensorrt" in lines[0]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend to be a machine with an H100: give the names of the engines that were asked to be opened."""
    names = []

    def open_file(path: Path) -> Any:
        assert (path.parent / record.FILE).is_file()
        names.append(path.name)
        if path.name != "model.h100.engine":
            raise MachineError(f"{path.name} is for another GPU")
        return lambda feeds: {"y": feeds["x"] * 2, "same": feeds["ids"]}

    monkeypatch.setattr("compressor.engines.tensorrt.open_file", open_file)
    return names


FEEDS = {"x": np.float32([[1, 2], [3, 4]]), "ids": np.array([7])}


def test_the_engine_of_this_gpu_is_served(uri: str, folder: Path, tmp_path: Path, opened: list[str]) -> None:
    import mlflow.pyfunc

    model = mlflow.pyfunc.load_model(str(_recorded(uri, _report(folder), folder, tmp_path)))
    assert opened == ["model.a10g.engine", "model.h100.engine"]
    outputs = model.predict(FEEDS)
    assert set(outputs) == {"y", "same"}
    np.testing.assert_array_equal(outputs["y"], [[2, 4], [6, 8]])
    np.testing.assert_array_equal(outputs["same"], [7])


def test_a_model_of_one_input_takes_an_array_and_a_table(
    uri: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow.pyfunc
    import pandas as pd

    rung = folder / "artifacts" / "int8"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[N,2] x) => (float[N,2] y) { y = Identity(x) }'
        ),
        rung / "model.onnx",
    )
    session = lambda feeds: {"y": feeds["x"] * 2}  # noqa: E731
    monkeypatch.setattr("compressor.engines.tensorrt.open_file", lambda _: session)
    model = mlflow.pyfunc.load_model(str(_recorded(uri, _report(folder), folder, tmp_path)))
    np.testing.assert_array_equal(model.predict(FEEDS["x"])["y"], [[2, 4], [6, 8]])
    np.testing.assert_array_equal(model.predict(pd.DataFrame({"x": FEEDS["x"].tolist()}))["y"], [[2, 4], [6, 8]])


def test_every_reason_is_told_once_where_no_engine_fits(
    uri: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow.pyfunc

    def refuse(path: Path) -> Any:
        raise MachineError("no GPU" if path.name == "model.a10g.engine" else f"{path.name}: no driver")

    arrived = _recorded(uri, _report(folder), folder, tmp_path)
    monkeypatch.setattr("compressor.engines.tensorrt.open_file", refuse)
    with pytest.raises(MachineError, match=r"\Ano GPU; model\.h100\.engine: no driver\Z"):
        mlflow.pyfunc.load_model(str(arrived))


@pytest.mark.usefixtures("opened")
def test_what_the_script_cannot_name_is_refused(uri: str, folder: Path, tmp_path: Path) -> None:
    import mlflow.pyfunc

    arrived = _recorded(uri, _report(folder), folder, tmp_path)
    model = mlflow.pyfunc.load_model(str(arrived)).unwrap_python_model()
    with pytest.raises(TypeError, match="expected a dictionary of arrays by input, found ndarray"):
        model.predict(None, FEEDS["x"])


def test_the_engine_json_of_a_version_is_read(uri: str, folder: Path, tmp_path: Path) -> None:
    arrived = _recorded(uri, _report(folder), folder, tmp_path)
    assert [one.capabilities for one in record.read(arrived / record.FILE).engines] == [("8.6",), ("9.0",)]
    assert not (arrived / "session.json").exists()


def _on_gpu(folder: Path, first: str = "CUDAExecutionProvider") -> r.Report:
    """Give the report of a run that chose an ONNX model which was measured on another provider than the CPU's."""
    report, rung = _report(folder), folder / "artifacts" / "int8"
    (rung / "model.onnx").rename(rung / "net.onnx")
    files = tuple(workspace.file(rung / one, folder) for one in ("net.onnx", "weights/w.bin"))
    options = {"intra_op_num_threads": "2", "providers": f"{first},CPUExecutionProvider"}
    artifact = r.Artifact("onnxruntime", "cuda", files, 1.0, options)
    (rung / "load.py").write_text(snippet(artifact))
    versions = {"mlflow": "3.17.2", "onnxruntime": "1.32.0", "onnxruntime-ep-nv-tensorrt-rtx-cu13": "0.5.0"}
    environment = replace(report.environment, versions=versions)
    return replace(report, trials=(r.Trial("int8", artifacts=(artifact,)),), environment=environment)


def test_a_model_on_a_gpu_is_served_by_its_loader_and_no_pickle(uri: str, folder: Path, tmp_path: Path) -> None:
    import mlflow.pyfunc
    from mlflow.models import Model

    report = _on_gpu(folder)
    rung = folder / "artifacts" / "int8"
    on_cpu = replace(report.trials[0].artifacts[0], options={})  # what a loader gives where there is a GPU: a session
    (rung / "load.py").write_text(snippet(on_cpu))
    arrived = _recorded(uri, report, folder, tmp_path)
    for name in ("net.onnx", "weights/w.bin", "load.py"):
        assert (arrived / name).read_bytes() == (rung / name).read_bytes()
    assert (arrived / "session.json").is_file()
    assert [path.name for path in arrived.glob("*.onnx")] == ["net.onnx"]
    assert set(Model.load(str(arrived)).flavors) == {"python_function"}
    assert "pickle" not in (arrived / "MLmodel").read_text() + (arrived / "requirements.txt").read_text()
    assert not [path for path in arrived.rglob("*") if path.suffix == ".pkl"]
    outputs = mlflow.pyfunc.load_model(str(arrived)).predict(FEEDS)
    assert set(outputs) == {"y", "same"}
    np.testing.assert_array_equal(outputs["y"], [[3, 3, 3], [7, 7, 7]])
    np.testing.assert_array_equal(outputs["same"], [7])


def test_a_model_whose_gpu_is_not_there_is_not_served_on_the_cpu(uri: str, folder: Path, tmp_path: Path) -> None:
    import mlflow.pyfunc

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA's provider")
    arrived = _recorded(uri, _on_gpu(folder), folder, tmp_path)
    with (
        pytest.warns(UserWarning, match="CUDA"),
        pytest.raises(RuntimeError, match="CUDAExecutionProvider is left out"),
    ):
        mlflow.pyfunc.load_model(str(arrived))


@pytest.mark.parametrize(
    ("first", "packages"),
    [
        ("CUDAExecutionProvider", {"onnxruntime-gpu[cuda,cudnn]"}),
        ("TensorrtExecutionProvider", {"onnxruntime-gpu[cuda,cudnn]"}),
        (
            "NvTensorRTRTXExecutionProvider",
            {"onnxruntime==1.32.0", "onnxruntime-ep-nv-tensorrt-rtx-cu13==0.5.0"},
        ),
    ],
)
def test_a_model_on_a_gpu_names_the_packages_of_its_provider(
    uri: str, folder: Path, tmp_path: Path, first: str, packages: set[str]
) -> None:
    arrived = _recorded(uri, _on_gpu(folder, first), folder, tmp_path)
    assert set((arrived / "requirements.txt").read_text().split()) == {"mlflow==3.17.2", "numpy"} | packages


def test_the_version_of_a_package_with_extras_is_named(folder: Path) -> None:
    from compressor.registry import serving

    artifact = _on_gpu(folder).trials[0].artifacts[0]
    assert "onnxruntime-gpu[cuda,cudnn]==1.31.0" in serving.requirements(artifact, {"onnxruntime-gpu": "1.31.0"})


def test_a_model_on_a_gpu_without_its_loader_is_not_registered(uri: str, folder: Path) -> None:
    report = _on_gpu(folder)
    (folder / "artifacts" / "int8" / "load.py").unlink()
    with pytest.raises(PublishError, match=r"load\.py"):
        registry.record(uri, report, folder)
