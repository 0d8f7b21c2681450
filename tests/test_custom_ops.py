"""Custom operators: a library given is in every session and beside the artifact, one that is not given is never loaded.

The library is that of `onnxruntime-extensions`; of its operators NegPos gives x where it is negative, and x where it is
positive, so that their difference is the magnitude of x.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import yaml
from exact import EXACT
from finished import finish
from onnx import numpy_helper

from compressor import graph, plan, recipe, runtime, samples
from compressor.errors import InputError, RungError
from compressor.isolation import Limits
from compressor.pipeline import subject
from compressor.pipeline.steps import Steps
from compressor.records import Array, Feeds, Outputs
from compressor.stages import Fuse, Prune, Quantize
from compressor.stages.supply import divided

ROOT = Path(__file__).parents[1]
LIBRARY = Path(pytest.importorskip("onnxruntime_extensions").get_library_path())
WIDTH, MIDDLE, CLASSES = 16, 64, 8
IMPORTS = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.contrib" : 1, "com.microsoft" : 1]>'


def written(path: Path, nodes: str, **arrays: Array) -> Path:
    """Write a model from x [batch, 16] to y; what is not given of its constants is drawn."""
    text = f"{IMPORTS} custom (float[batch,{WIDTH}] x) => (float[batch,{CLASSES}] y) {{ {nodes} }}"
    model = onnx.parser.parse_model(text)
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Give Gemm, Relu, MatMul, the magnitude by a custom operator, Gemm."""
    rng = np.random.default_rng(0)
    nodes = """
        a = Gemm (x, w1, b1)  r = Relu (a)  h = MatMul (r, w2)
        [magnitude] n, p = ai.onnx.contrib.NegPos (h)
        s = Sub (p, n)  y = Gemm (s, w3, b3)"""
    return written(
        tmp_path / "net.onnx",
        nodes,
        w1=rng.normal(0, 0.3, (WIDTH, MIDDLE)),
        b1=rng.normal(0, 0.1, MIDDLE),
        w2=rng.normal(0, 0.2, (MIDDLE, MIDDLE)),
        w3=rng.normal(0, 0.2, (MIDDLE, CLASSES)),
        b3=np.zeros(CLASSES),
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).normal(size=(120, WIDTH)).astype(np.float32))
    return tmp_path / "x.npz"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be one that was started with the library."""
    for name, value in runtime.custom_ops.environment([LIBRARY]).items():
        monkeypatch.setenv(name, value)


def computed(path: Path, x: Array) -> Array:
    """Compute the model with numpy."""
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"]
    result: Array = np.abs(hidden) @ weights["w3"] + weights["b3"]
    return result


def ran(path: Path, feeds: Feeds) -> Outputs:
    """Run a model with the library, by ONNX Runtime alone."""
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(LIBRARY))
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def sqnr_db(wanted: Array, found: Array) -> float:
    return float(10 * np.log10(np.sum(wanted**2) / np.sum((found - wanted) ** 2)))


def supplied(model: Path, data: Path, folder: Path) -> object:
    opened = graph.open_model(model)
    read = samples.read(data, opened.inputs, {"x": (1, WIDTH)}, None)
    return divided(read, 0, folder / "kept", steady=True)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    "scheme",
    [{"scheme": "static"}, {"scheme": "static", "operators": "all"}, {"scheme": "dynamic"}, {"scheme": "weights"}],
)
def test_what_is_around_a_custom_operator_is_quantized(
    model: Path, data: Path, tmp_path: Path, scheme: dict[str, str]
) -> None:
    graph.normalise(model, normal := tmp_path / "normal.onnx")
    stage = Quantize.model_validate(
        {
            "backend": "onnxruntime",
            "operators": "core",
            "activations": "u8",
            "symmetric": False,
            "unsigned": (),
            **scheme,
        }
    )
    did = finish(stage.apply(graph.open_model(normal), supplied(model, data, tmp_path), out := tmp_path / "q.onnx"))
    x = np.load(data)["x"]
    assert sqnr_db(computed(model, x), ran(out, {"x": x})["y"]) > 25
    nodes = onnx.load(out).graph.node
    assert [node.name for node in nodes if node.domain == "ai.onnx.contrib"] == ["magnitude"]
    assert "ai.onnx.contrib" in did.excluded["magnitude"]


@pytest.mark.usefixtures("loaded")
def test_nncf_says_why_it_is_left_out(model: Path, data: Path, tmp_path: Path) -> None:
    graph.normalise(model, normal := tmp_path / "normal.onnx")
    stage = Quantize(scheme="static", backend="nncf", activations="u8", symmetric=False, unsigned=())
    with pytest.raises(RungError, match="custom operators"):
        finish(stage.apply(graph.open_model(normal), supplied(model, data, tmp_path), tmp_path / "q.onnx"))


@pytest.mark.usefixtures("loaded")
def test_fusing_keeps_a_custom_operator(model: Path, data: Path, tmp_path: Path) -> None:
    graph.normalise(model, normal := tmp_path / "normal.onnx")
    finish(Fuse().apply(graph.open_model(normal), supplied(model, data, tmp_path), out := tmp_path / "f.onnx"))
    x = np.load(data)["x"]
    assert [node.op_type for node in onnx.load(out).graph.node if node.domain == "ai.onnx.contrib"] == ["NegPos"]
    np.testing.assert_allclose(ran(out, {"x": x})["y"], computed(model, x), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("loaded")
def test_pruning_does_not_follow_channels_into_a_custom_operator(model: Path, data: Path, tmp_path: Path) -> None:
    graph.normalise(model, normal := tmp_path / "normal.onnx")
    stage = Prune(ratio="20%", of="parameters").resolve(model, EXACT)
    finish(stage.apply(graph.open_model(normal), supplied(model, data, tmp_path), out := tmp_path / "p.onnx"))
    shapes = {tensor.name: tuple(tensor.dims) for tensor in onnx.load(out).graph.initializer}
    assert shapes["w3"] == (MIDDLE, CLASSES)  # its rows are channels of the custom operator
    assert shapes["w1"][1] == shapes["w2"][0] < MIDDLE
    assert shapes["w2"][1] == MIDDLE


def test_an_old_opset_is_raised_around_a_custom_operator(tmp_path: Path, loaded: None) -> None:  # noqa: ARG001
    nodes = "s = Squeeze <axes = [0]> (c)  n, p = ai.onnx.contrib.NegPos (x)  m = Sub (p, n)  y = MatMul (m, s)"
    path = tmp_path / "old.onnx"
    weight = np.random.default_rng(0).normal(size=(1, WIDTH, CLASSES))
    text = IMPORTS.replace('"" : 17', '"" : 11')
    model = onnx.parser.parse_model(f"{text} old (float[batch,{WIDTH}] x) => (float[batch,{CLASSES}] y) {{ {nodes} }}")
    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "c"))
    onnx.save(model, path)
    graph.normalise(path, out := tmp_path / "new.onnx")
    assert {each.domain: each.version for each in onnx.load(out).opset_import}[""] == 17
    x = np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)
    np.testing.assert_allclose(runtime.check_runs(out, {"x": x})["y"], np.abs(x) @ weight[0], rtol=1e-4, atol=1e-4)


def test_an_operator_that_is_called_like_one_of_the_standard_is_left_alone(tmp_path: Path) -> None:
    """Names alone do not tell: each of these would be computed, folded or quantized were it of the standard."""
    nodes = """
        k = my.ops.Add (c, c)  m = my.ops.MatMul (x, w)  q = my.ops.Gemm (m, v, b)  r = my.ops.BatchNormalization (q, k)
        y = my.ops.Relu (r)"""
    arrays = {"c": np.ones(2), "w": np.ones((WIDTH, WIDTH)), "v": np.ones((WIDTH, CLASSES)), "b": np.ones(CLASSES)}
    path = written(tmp_path / "odd.onnx", nodes, **arrays)
    model = onnx.load(path)
    model.opset_import.append(onnx.helper.make_opsetid("my.ops", 1))
    onnx.save(model, path)
    opened = graph.open_model(path)
    assert graph.at_shapes(opened, {"x": (1, WIDTH)}).nodes == 5
    graph.normalise(path, out := tmp_path / "normal.onnx")
    from compressor.stages.quantize.exclude import exclusions
    from compressor.stages.quantize.prepare import prepare

    prepare(out, prepared := tmp_path / "prepared.onnx")
    now = onnx.load(prepared).graph
    assert [(n.domain, n.op_type, list(n.input)) for n in now.node] == [
        (n.domain, n.op_type, list(n.input)) for n in model.graph.node
    ]
    assert exclusions(prepared, ()).keys() == {node.name for node in now.node}


CONTRIBUTED = {
    "BiasGelu": "h = MatMul (x, w)  g = com.microsoft.BiasGelu (h, b)  y = MatMul (g, v)",
    "FusedMatMul": "h = MatMul (x, w)  y = com.microsoft.FusedMatMul <alpha = 0.5> (h, v)",
    "QuickGelu": "h = MatMul (x, w)  g = com.microsoft.QuickGelu (h)  y = MatMul (g, v)",
    "SkipLayerNormalization": "h = MatMul (x, w)  g = com.microsoft.SkipLayerNormalization (h, h, b)  y = MatMul(g, v)",
}


@pytest.mark.parametrize("operator", sorted(CONTRIBUTED))
@pytest.mark.parametrize("scheme", ["static", "dynamic"])
def test_contributed_operators_need_no_library(tmp_path: Path, data: Path, operator: str, scheme: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(0, 0.3, (WIDTH, MIDDLE)), "b": rng.normal(size=MIDDLE)}
    path = written(tmp_path / "net.onnx", CONTRIBUTED[operator], **arrays, v=rng.normal(0, 0.2, (MIDDLE, CLASSES)))
    graph.normalise(path, normal := tmp_path / "normal.onnx")
    settings = {"backend": "onnxruntime", "operators": "core", "activations": "u8", "symmetric": False, "unsigned": ()}
    stage = Quantize.model_validate({"scheme": scheme, **settings})
    finish(stage.apply(graph.open_model(normal), supplied(path, data, tmp_path), out := tmp_path / "q.onnx"))
    x = np.load(data)["x"]
    wanted = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert sqnr_db(wanted, ran(out, {"x": x})["y"]) > 25
    assert operator in {node.op_type for node in onnx.load(out).graph.node}


@pytest.mark.parametrize(
    ("nodes", "change", "words"),
    [
        ("[odd_one] y = ai.onnx.contrib.Secret (x)", {}, "Secret of the domain 'ai.onnx.contrib', node 'odd_one'"),
        ("[odd_one] y = com.microsoft.Secret (x)", {}, "Secret of the domain 'com.microsoft', node 'odd_one'"),
        ("[odd_one] y = Secret (x)", {}, "operator Secret, node 'odd_one', is none of the ONNX standard at opset 17"),
        ("y = Relu (x)", {"opset": 99}, "it needs opset 99 of ai.onnx"),
        ("y = Relu (x)", {"ir": 99}, "it is of IR version 99"),
        ("c = Cast <to = 16> (x)  e = Erf (c)  y = Cast <to = 1> (e)", {}, "no kernel for operator Erf of opset 13"),
        ("c = Cast <to = 5> (x)  e = Erf (c)  y = Cast <to = 1> (e)", {}, "reads 'c' as tensor(int16)"),
    ],
)
def test_what_the_runtime_does_not_know_is_said_in_one_sentence(
    tmp_path: Path, nodes: str, change: dict[str, int], words: str
) -> None:
    path = written(tmp_path / "net.onnx", nodes)
    model = onnx.load(path)
    model.opset_import[0].version = change.get("opset", 17)
    model.ir_version = change.get("ir", 8)
    onnx.save(model, path)
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        runtime.check_runs(path, {"x": np.zeros((1, WIDTH), np.float32)})
    assert "ONNXRuntimeError" not in str(refused.value)
    assert "onnxruntime_src" not in str(refused.value)
    if "contrib" in words or "standard" in words:
        assert "--custom-ops" in str(refused.value)


@pytest.mark.usefixtures("loaded")
def test_an_operator_in_none_of_the_libraries_names_them(tmp_path: Path) -> None:
    path = written(tmp_path / "net.onnx", "y = ai.onnx.contrib.Secret (x)")
    with pytest.raises(InputError, match=re.escape(str(LIBRARY))):
        runtime.check_runs(path, {"x": np.zeros((1, WIDTH), np.float32)})


@pytest.mark.parametrize("what", ["missing", "no library", "library of something else"])
def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    path = tmp_path / "lib.so"
    if what == "no library":
        path.write_text("text")
    elif what != "missing":
        shutil.copy(next(Path(np.__file__).parents[1].glob("numpy/_core/_multiarray_umath*.so")), path)
    for name, value in runtime.custom_ops.environment([path]).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=re.escape(str(path))):
        runtime.custom_ops.check()


def test_libraries_are_found_from_the_recipe_and_may_not_share_a_name(tmp_path: Path) -> None:
    for name in ("one.so", "sub/one.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    asked = recipe.default().model_copy(update={"custom_ops": (Path("one.so"),)})
    assert plan.libraries(asked, tmp_path) == (tmp_path / "one.so",)
    both = asked.model_copy(update={"custom_ops": (Path("one.so"), Path("sub/one.so"))})
    with pytest.raises(InputError, match="two libraries"):
        plan.libraries(both, tmp_path)
    with pytest.raises(InputError, match=r"none\.so"):
        plan.libraries(asked.model_copy(update={"custom_ops": (Path("none.so"),)}), tmp_path)


@pytest.fixture
def artifact(tmp_path: Path, model: Path) -> Path:
    """Give the folder of an artifact from anywhere, with a library beside it that must not be loaded."""
    folder = tmp_path / "artifact"
    folder.mkdir()
    shutil.copy(model, folder / "model.onnx")
    shutil.copy(LIBRARY, folder / LIBRARY.name)
    options = {**runtime.options(1, spinning=False), "custom_ops": LIBRARY.name}
    (folder / "session.json").write_text(json.dumps(options))
    return folder


def test_a_library_that_comes_with_a_model_is_not_loaded_unasked(artifact: Path, tmp_path: Path) -> None:
    steps = Steps(Limits(), verbose=False)
    with pytest.raises(InputError, match=r"never run unasked: give --custom-ops") as refused:
        finish(subject.resolve(str(artifact), None, tmp_path / "fetched", steps))
    assert LIBRARY.name in str(refused.value)
    assert refused.value.exit_code == 2


def test_no_session_loads_what_its_options_name(artifact: Path) -> None:
    options = json.loads((artifact / "session.json").read_text())
    with pytest.raises(RungError, match="NegPos"):
        runtime.load(artifact / "model.onnx", options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the whole from the command line, with the library in a recipe; give its folder."""
    home = tmp_path_factory.mktemp("custom")
    rng = np.random.default_rng(0)
    weights = {"w1": rng.normal(0, 0.3, (WIDTH, MIDDLE)), "w3": rng.normal(0, 0.2, (MIDDLE, CLASSES))}
    nodes = "h = MatMul (x, w1)  n, p = ai.onnx.contrib.NegPos (h)  s = Sub (p, n)  y = MatMul (s, w3)"
    written(home / "net.onnx", nodes, **weights)
    np.savez(home / "x.npz", x=rng.normal(size=(120, WIDTH)).astype(np.float32))
    shutil.copy(LIBRARY, home / "ops.so")
    asked = {
        "custom_ops": ["ops.so"],
        "data": {"calibration": {"path": "x.npz"}, "evaluation": {"path": "x.npz"}},
        "rungs": [{"name": "int8", "stages": [{"quantize": {"scheme": "static"}}, "fuse"]}],
        "gates": [{"accuracy": {"max_drop": "50%"}}],
        "limits": {"measure": "1s"},
        "registry": {"uri": f"sqlite:///{home}/mlflow.db"},
    }
    (home / "recipe.yaml").write_text(yaml.safe_dump(asked))
    script = "from compressor import cli, gates\ngates.regression = lambda _before, _now: None\ncli.main()"
    words = [sys.executable, "-c", script, "run", str(home / "net.onnx"), "--recipe", str(home / "recipe.yaml"), "-q"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    yield home
    shutil.rmtree(home)


def built(home: Path) -> Path:
    (found,) = home.glob("reports/net/*/artifacts/int8")
    return found


@pytest.mark.slow
def test_an_artifact_holds_its_library_and_loads_by_itself(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(built(finished), tmp_path / "elsewhere")
    assert (folder / "ops.so").read_bytes() == LIBRARY.read_bytes()
    report = json.loads(next(finished.glob("reports/net/*/report.json")).read_text())
    assert report["chosen"] == "int8"
    (artifact,) = report["trials"][0]["artifacts"]
    assert [Path(file["path"]).name for file in artifact["files"]] == ["model.onnx", "ops.so"]
    (finished / "ops.so").rename(finished / "away.so")
    try:
        ended = subprocess.run([sys.executable, folder / "load.py"], capture_output=True, text=True, check=False)
    finally:
        (finished / "away.so").rename(finished / "ops.so")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("x tensor(float)")


@pytest.mark.slow
def test_a_version_in_the_registry_is_served_with_its_library(finished: Path) -> None:
    script = (
        "import sys, mlflow, numpy as np\nmlflow.set_tracking_uri(sys.argv[1])\n"
        "model = mlflow.pyfunc.load_model('models:/net/1')\n"
        "print(model.predict({'x': np.ones((1, 16), np.float32)})['y'].shape)"
    )
    uri = f"sqlite:///{finished}/mlflow.db"
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}  # of other tests
    ended = subprocess.run([sys.executable, "-c", script, uri], capture_output=True, text=True, check=False, env=env)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == f"(1, {CLASSES})"


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [False, True])
def test_bench_runs_an_artifact_only_with_a_library_that_was_given(
    finished: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str], *, trusted: bool
) -> None:
    given = ("--custom-ops", finished / "ops.so") if trusted else ()
    code = command("bench", built(finished), *given, "--samples", finished / "x.npz", "--duration", "1s", "--json")
    assert code == (0 if trusted else 2)
    assert trusted or "--custom-ops" in capsys.readouterr().err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    from compressor import cli

    def call(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["compress", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return int(stopped.value.code or 0)

    return call
