"""What a caller may name: every kind of source, the options that come with it, and what it was made of."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import small
from finished import finish
from found import REPORT

from compressor import formats, graph, recipe, records, registry
from compressor.engines import Onnxruntime
from compressor.errors import InputError
from compressor.isolation import Limits
from compressor.pipeline import subject
from compressor.pipeline.steps import Steps
from compressor.pipeline.subject import Subject
from compressor.plan import Origin
from compressor.samples import Preprocess

OPTIONS = {
    "intra_op_num_threads": "1",
    "inter_op_num_threads": "1",
    "session.intra_op.allow_spinning": "1",
    "providers": "CPUExecutionProvider",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.classifier(tmp_path_factory.mktemp("subject") / "net.onnx")


@pytest.fixture
def run(tmp_path: Path, model: Path) -> Path:
    """Give the folder of a run that chose its only rung."""
    folder = tmp_path / "reports" / "net" / "1"
    beside = folder / "artifacts" / "int8"
    beside.mkdir(parents=True)
    shutil.copy(model, beside / "model.onnx")
    (beside / "session.json").write_text(json.dumps(OPTIONS))
    report(folder)
    return folder


def report(folder: Path, **changes: object) -> None:
    """Write a report on the model `net` into a run's folder."""
    model = folder / "artifacts" / "int8" / "model.onnx"
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest() if model.is_file() else "gone"
    file = records.File("artifacts/int8/model.onnx", sha256, 1)
    artifact = records.Artifact("onnxruntime", "cpu", (file,), 0.0, OPTIONS)
    written = replace(
        REPORT,
        chosen="int8",
        model=replace(REPORT.model, name="net"),
        data=replace(REPORT.data, preprocess=None),
        baseline=replace(REPORT.baseline, artifacts=()),
        trials=(records.Trial("int8", artifacts=(artifact,)),),
    )
    (folder / "report.json").write_text(formats.render(replace(written, **changes), "json"))  # type: ignore[arg-type]


def resolved(source: object, uri: str | None = None) -> Subject:
    return finish(subject.resolve(str(source), uri, Path("fetched"), Steps(Limits(), verbose=False)))


def test_a_file_is_itself(model: Path) -> None:
    assert resolved(model) == Subject(str(model), model)


def test_an_artifact_comes_with_the_options_beside_it(run: Path) -> None:
    folder = run / "artifacts" / "int8"
    for source in (folder, folder / "model.onnx"):
        found = resolved(source)
        assert (found.path, found.options) == (folder / "model.onnx", OPTIONS)


def test_a_report_stands_for_what_it_chose(run: Path) -> None:
    for source in (run / "report.json", run):
        found = resolved(source)
        assert (found.source, found.path) == (str(source), run / "artifacts" / "int8" / "model.onnx")
        assert found.options == OPTIONS
    report(run, verdict="fail", chosen=None)
    with pytest.raises(InputError, match=r"report\.json: its run chose nothing; .* artifacts/ and one of int8$"):
        resolved(run / "report.json")


def test_a_report_stands_only_for_the_bytes_that_it_chose(run: Path) -> None:
    chosen = run / "artifacts" / "int8" / "model.onnx"
    chosen.write_bytes(chosen.read_bytes() + b"\0")
    with pytest.raises(InputError, match=r"model\.onnx: is not what the run of .*report\.json chose"):
        resolved(run)
    assert resolved(chosen).path == chosen, "by its own name it is measured as it is"
    chosen.unlink()
    with pytest.raises(InputError, match=r"artifacts/int8/model\.onnx, is not beside it"):
        resolved(run / "report.json")


def test_what_a_run_made_is_known_by_the_name_of_its_original(run: Path, tmp_path: Path) -> None:
    origin = Origin("net", (tmp_path / "reports" / "net", tmp_path / "reports", tmp_path))
    for source in (run, run / "report.json", run / "artifacts" / "int8", run / "artifacts" / "int8" / "model.onnx"):
        assert resolved(source).origin == origin


def test_the_samples_of_the_original_are_prepared_as_in_its_run(run: Path) -> None:
    report(run, data=replace(REPORT.data, preprocess={"resize": 8, "mean": [0.5]}))
    origin = resolved(run).origin
    assert origin is not None
    assert origin.preprocess == Preprocess(resize=8, mean=(0.5,))
    report(run, data=replace(REPORT.data, preprocess={"resize": "much"}))
    with pytest.raises(InputError, match=r"report\.json: data\.preprocess: "):
        resolved(run)


def test_a_report_that_is_another_programs_does_not_matter(model: Path, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "artifacts" / "one").mkdir(parents=True)
    path = shutil.copy(model, tmp_path / "artifacts" / "one" / "net.onnx")
    assert resolved(path).origin is None


def test_options_decide_unless_an_engine_is_asked_for(run: Path) -> None:
    found = resolved(run / "artifacts" / "int8")
    auto, asked = recipe.Recipe(), recipe.Recipe(engine=Onnxruntime(threads=2))
    assert found.settled(auto).engine == Onnxruntime(threads=1, spinning=True)
    assert found.settled(asked).engine == Onnxruntime(threads=2)
    described = graph.open_model(found.path)
    assert found.built(described, auto, 8).artifact.options == OPTIONS
    assert found.built(described, asked, 8).artifact.options["intra_op_num_threads"] == "2"


def test_a_plain_file_gets_a_thread_for_each_cpu(model: Path) -> None:
    built = resolved(model).built(graph.open_model(model), recipe.Recipe(), 3)
    assert (built.engine.threads, built.artifact.options["intra_op_num_threads"]) == (3, "3")
    assert built.artifact.files[0].path == str(model)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"session\.json: expected the session options of a model, found no JSON"),
        ("[1]", r"session\.json: expected session options as `compress run` writes them"),
        ('{"optimized_model_filepath": "stolen.onnx"}', "expected session options as"),
        ('{"session.collect_node_memory_stats_to_file": "stolen.csv"}', "expected session options as"),
        ('{"intra_op_num_threads": "many"}', "expected session options as"),
        ('{"intra_op_num_threads": 1}', "expected session options as"),
        ('{"intra_op_num_threads": "9999"}', "expected session options as"),
        ('{"custom_ops": "/"}', "expected session options as"),
        ('{"custom_ops": ""}', "expected session options as"),
        ('{"custom_ops": "ops.so/.."}', "expected session options as"),
    ],
)
def test_options_that_are_none_are_refused(run: Path, content: str, message: str) -> None:
    (run / "artifacts" / "int8" / "session.json").write_text(content)
    with pytest.raises(InputError, match=message):
        resolved(run / "artifacts" / "int8")


def test_a_folder_must_hold_one_model(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a folder with one ONNX file, as an artifact has, found none"):
        resolved(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(model, tmp_path / name)
    with pytest.raises(InputError, match=r"found a\.onnx, b\.onnx"):
        resolved(tmp_path)


def fetched(uri: str, name: str, folder: Path) -> Path:
    """Stand in for the registry, in a child."""
    (folder / "session.json").write_text(json.dumps(OPTIONS))
    (folder / "MLmodel").write_text(f"{uri} {name}")
    small.classifier(folder / "model.onnx")
    return folder


def test_a_registered_model_is_fetched_with_its_options_and_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "fetch", fetched)
    work = subject.resolve("models:/net@champion", "sqlite:///x.db", tmp_path / "new", Steps(Limits(), verbose=False))
    found = finish(work)
    assert (found.source, found.path) == ("models:/net@champion", tmp_path / "new" / "model.onnx")
    assert found.options == OPTIONS
    assert (tmp_path / "new" / "MLmodel").read_text() == "sqlite:///x.db models:/net@champion"
    assert found.origin == Origin("net")


def test_without_a_registry_nothing_is_fetched() -> None:
    with pytest.raises(InputError, match="models:/net@champion: there is no registry to look in; give --registry URI"):
        resolved("models:/net@champion", "none")


def test_a_model_in_a_folder_of_the_root_is_no_artifact() -> None:
    assert subject._origin(Path("/folder/model.onnx")) is None


def test_options_of_another_provider_give_its_engine_and_device(run: Path, model: Path) -> None:
    folder = run / "artifacts" / "int8"
    options = {**OPTIONS, "providers": "CUDAExecutionProvider,CPUExecutionProvider"}
    (folder / "session.json").write_text(json.dumps(options))
    built = resolved(folder).built(graph.open_model(model), recipe.Recipe(), 8)
    assert built.engine == Onnxruntime(threads=1, spinning=True, provider="cuda")
    assert (built.artifact.device, built.artifact.options) == ("cuda", options)


def test_a_provider_that_no_run_writes_is_refused(run: Path) -> None:
    folder = run / "artifacts" / "int8"
    (folder / "session.json").write_text(json.dumps({**OPTIONS, "providers": "NoSuchExecutionProvider"}))
    with pytest.raises(InputError, match=r"session\.json: expected session options"):
        resolved(folder)
