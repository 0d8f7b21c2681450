"""Which samples calibrate and which score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import small

from compressor import graph
from compressor.errors import InputError
from compressor.plan import data
from compressor.plan.data import Files, Origin, Sets
from compressor.recipe import Calibration, Data, Evaluation, Recipe
from compressor.samples import Preprocess

SHAPES = {"x": (1, 3, small.SIDE, small.SIDE)}
SAMPLE = {"x": (3, small.SIDE, small.SIDE)}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "calibration_data").mkdir()
    monkeypatch.chdir(tmp_path)
    return small.classifier(tmp_path / "net.onnx")


def sets(model: Path, asked: Data | None = None, folder: Path | None = None) -> Sets:
    recipe = Recipe(data=asked or Data())
    opened = graph.open_model(model, SHAPES)
    return data.sets(data.files(recipe, opened, folder or model.parent), recipe, opened, SHAPES)


def inputs(samples: object) -> set[bytes]:
    return {feeds["x"].tobytes() for feeds in samples}  # type: ignore[attr-defined]


def test_one_set_is_split_by_the_seed_and_shares_nothing(model: Path) -> None:
    small.data(model.parent / "calibration_data" / "net.npz", model, 50, seed=1)
    found = sets(model)
    assert found.evaluation is not None
    assert (len(found.calibration), len(found.evaluation)) == (25, 25)
    assert not inputs(found.calibration) & inputs(found.evaluation)
    assert sets(model) == found


def test_two_sets_beside_the_model_are_found_by_their_names(model: Path) -> None:
    small.data(model.parent / "calibration_data" / "net_calibration.npz", model, 300, seed=1)
    small.data(model.parent / "calibration_data" / "net_eval.npz", model, 30, seed=2)
    found = sets(model)
    assert found.evaluation is not None
    assert (len(found.calibration), len(found.evaluation)) == (200, 30)
    assert found.warnings == ()


def test_the_recipe_limits_both(model: Path) -> None:
    both = small.data(model.parent / "d.npz", model, 50, seed=1)
    found = sets(
        model, Data(calibration=Calibration(path=both, samples=10), evaluation=Evaluation(path=both, samples=7))
    )
    assert found.evaluation is not None
    assert (len(found.calibration), len(found.evaluation)) == (10, 7)


def test_how_many_samples_serve_may_be_said_of_what_is_found(model: Path) -> None:
    small.data(model.parent / "calibration_data" / "net.npz", model, 50, seed=1)
    found = sets(model, Data(calibration=Calibration(samples=10), evaluation=Evaluation(samples=7)))
    assert found.evaluation is not None
    assert (len(found.calibration), len(found.evaluation)) == (10, 7)


def test_the_same_samples_under_two_names_are_refused(model: Path) -> None:
    one = small.data(model.parent / "a.npz", model, 50, seed=1)
    two = small.data(model.parent / "b.npz", model, 50, seed=1)
    with pytest.raises(InputError, match=r"b\.npz: 50 of its 50 samples also calibrate .*a\.npz"):
        sets(model, Data(calibration=Calibration(path=one), evaluation=Evaluation(path=two)))


def test_a_few_shared_samples_are_left_out_and_said(model: Path) -> None:
    one = small.data(model.parent / "a.npz", model, 50, seed=1)
    with np.load(one) as arrays:
        shared = arrays["x"][:2]
    two = small.data(model.parent / "b.npz", model, 60, seed=2)
    with np.load(two) as arrays:
        np.savez(two, x=np.concatenate([arrays["x"], shared]), label=np.append(arrays["label"], [0, 0]))
    found = sets(model, Data(calibration=Calibration(path=one), evaluation=Evaluation(path=two)))
    assert found.evaluation is not None
    assert len(found.evaluation) == 60
    assert any("2 of its 62 samples also calibrate and are not scored" in warning for warning in found.warnings)


def test_without_data_inputs_are_made_up_with_a_loud_warning(model: Path) -> None:
    found = sets(model)
    assert found.calibration.source.synthetic
    assert found.evaluation is None
    assert "no calibration data" in found.warnings[0]
    assert "calibration_data" in found.warnings[0]


def test_a_path_is_looked_for_beside_the_recipe_then_in_the_working_folder(model: Path) -> None:
    beside = model.parent / "recipes"
    beside.mkdir()
    small.data(model.parent / "here.npz", model, 50, seed=1)
    small.data(beside / "there.npz", model, 40, seed=1)
    for name, n in (("here.npz", 25), ("there.npz", 20)):
        found = sets(model, Data(calibration=Calibration(path=Path(name))), beside)
        assert len(found.calibration) == n
    with pytest.raises(InputError, match=r"none\.npz: no such file or folder; looked for .*recipes.*and"):
        sets(model, Data(calibration=Calibration(path=Path("none.npz"))), beside)


def test_what_was_made_of_a_model_has_the_samples_of_that(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph.open_model(model.rename(model.with_name("model.onnx")))
    for name in ("net_calibration.npz", "model.npz"):
        small.data(model.parent / "calibration_data" / name, made.path, 10, seed=1)
    (model.parent / "elsewhere").mkdir()
    monkeypatch.chdir(model.parent / "elsewhere")
    home = model.parent
    assert data.files(Recipe(), made, home) == Files(*[home / "calibration_data" / "model.npz"] * 2, SAMPLE)
    known = data.files(Recipe(), made, home, Origin("net"))
    assert known is not None
    assert known.calibration == home / "calibration_data" / "net_calibration.npz"
    (home / "runs").mkdir()
    moved = graph.open_model(made.path.rename(home / "runs" / "model.onnx"))
    assert data.files(Recipe(), moved, home, Origin("net")) is None
    assert data.files(Recipe(), moved, home, Origin("net", (home / "none", home))) == known


def test_samples_of_an_origin_are_prepared_as_there_unless_others_are_named() -> None:
    origin = Origin("net", preprocess=Preprocess(resize=8))
    assert data.inherited(Recipe(), origin).data.preprocess == Preprocess(resize=8)
    assert data.inherited(Recipe(), None) == Recipe()
    named = Recipe(data=Data(calibration=Calibration(path=Path("d.npz"))))
    own = Recipe(data=Data(preprocess=Preprocess(resize=9)))
    assert (data.inherited(named, origin), data.inherited(own, origin)) == (named, own)


def test_a_single_sample_calibrates_and_accuracy_stays_unknown(model: Path) -> None:
    one = small.data(model.parent / "d.npz", model, 1, seed=1)
    found = sets(model, Data(calibration=Calibration(path=one)))
    assert found.evaluation is None
    assert any("a single sample cannot both calibrate and score" in warning for warning in found.warnings)


def test_where_all_others_equal_those_that_calibrate_none_is_left_to_score(model: Path) -> None:
    first, second = (small.data(model.parent / f"{i}.npz", model, 1, seed=i) for i in (1, 2))
    with np.load(first) as one, np.load(second) as other:
        # of 6 samples, 3 calibrate: among them is each of the two, whatever the seed, or the set has no variation
        arrays = {name: np.concatenate([one[name], other[name]] * 3) for name in one}
    np.savez(model.parent / "d.npz", **arrays)
    found = sets(model, Data(calibration=Calibration(path=Path("d.npz"))))
    assert found.evaluation is None
    (told,) = [warning for warning in found.warnings if "accuracy is unknown" in warning]
    assert "no sample is left to score" in told


def test_identical_samples_are_refused(model: Path) -> None:
    np.savez(model.parent / "d.npz", x=np.zeros((10, 3, small.SIDE, small.SIDE), np.float32))
    with pytest.raises(InputError, match=r"d\.npz: no variation, all 5 samples are identical"):
        sets(model, Data(calibration=Calibration(path=Path("d.npz"))))


def test_samples_that_stand_twice_in_one_file_never_calibrate_and_score(model: Path) -> None:
    one = small.data(model.parent / "a.npz", model, 30, seed=1)
    with np.load(one) as arrays:
        twice = {name: np.concatenate([arrays[name], arrays[name]]) for name in arrays}
    np.savez(model.parent / "d.npz", **twice)
    found = sets(model, Data(calibration=Calibration(path=Path("d.npz"))))
    assert found.evaluation is not None
    assert not inputs(found.calibration) & inputs(found.evaluation)
    assert any("samples that stand twice are not scored" in warning for warning in found.warnings)


def test_files_beside_the_model_do_not_matter_when_both_sets_are_named(model: Path) -> None:
    for name in ("net.npz", "net_eval.npz", "net_test.npz"):
        small.data(model.parent / "calibration_data" / name, model, 10, seed=1)
    one = small.data(model.parent / "a.npz", model, 40, seed=2)
    two = small.data(model.parent / "b.npz", model, 40, seed=3)
    found = sets(model, Data(calibration=Calibration(path=one), evaluation=Evaluation(path=two)))
    assert found.calibration.source.source == str(one)


def varied(folder: Path, n: int) -> Path:
    (folder / "varied").mkdir()
    for i in range(n):
        np.save(folder / "varied" / f"{i}.npy", np.random.default_rng(i).random((4, 3 + i % 3), np.float32))
    return folder / "varied"


def test_samples_of_the_measured_shape_are_timed_or_else_made_up_ones_with_a_warning(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[batch,4,time] x) => (float[batch,4,time] y) { y = Relu (x) }"""), model)  # fmt: skip
    both = varied(tmp_path, 24)
    recipe = Recipe(data=Data(calibration=Calibration(path=both)))
    found = data.files(recipe, graph.open_model(model), tmp_path)
    assert found is not None
    assert data.seen(found, {}) == {"x": (4, (3, 5))}
    assert data.seen(found, {"x": (1, 4, 7)}) == {"x": (1, 4, 7)}, "a profile says what samples leave open"

    def at(shapes: dict[str, tuple[int, ...]]) -> Sets:
        return data.sets(found, recipe, graph.open_model(model, shapes), shapes)

    same = at({"x": (2, 4, 4)})
    assert {feeds["x"].shape for feeds in same.calibration} == {(1, 4, 3), (1, 4, 4), (1, 4, 5)}
    assert {feeds["x"].shape for feeds in same.measured} == {(2, 4, 4)}
    assert not same.measured.source.synthetic
    assert not [warning for warning in same.warnings if "made-up" in warning]
    other = at({"x": (1, 4, 9)})
    assert other.measured.source.synthetic
    assert not other.calibration.source.synthetic
    assert any("no sample has the measured shapes (x 1x4x9)" in warning for warning in other.warnings)
    assert (
        data.at_shapes(found, recipe, graph.open_model(model), {"x": (1, 4, 9)})[1]
        == f"{both}: no sample has these shapes"
    )


def test_the_name_of_a_function_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data.located(Path("package.module:function"), tmp_path) == Path("package.module:function")
    (tmp_path / "m:f").mkdir()
    assert data.located(Path("m:f"), tmp_path) == tmp_path / "m:f"
    with pytest.raises(InputError, match="no such file"):
        data.located(Path("package.module:"), tmp_path)
