from pathlib import Path

import pytest

from compressor.errors import InputError
from compressor.samples import Found, find, roles


def lay(place: Path, *names: str) -> Path:
    data = place / "calibration_data"
    data.mkdir(parents=True)
    for name in names:
        data.joinpath(name).write_bytes(b"") if "." in name else data.joinpath(name).mkdir()
    return data


@pytest.mark.parametrize(
    ("names", "calibration", "evaluation"),
    [
        (["net.npz"], "net.npz", "net.npz"),
        (["net.npz", "net_eval.npz"], "net.npz", "net_eval.npz"),
        (["net_calib.npz", "net_test.zip"], "net_calib.npz", "net_test.zip"),
        (["net_calibration.npz", "net_evaluation"], "net_calibration.npz", "net_evaluation"),
        (["net_calibration", "net.npz"], "net_calibration", "net.npz"),
        (["net_eval.npz"], None, "net_eval.npz"),
        (["net_calib.csv", "net_eval.parquet"], "net_calib.csv", "net_eval.parquet"),
        (["net.npy"], "net.npy", "net.npy"),
        ([], None, None),
    ],
)
def test_names_decide_what_a_file_is_for(
    tmp_path: Path, names: list[str], calibration: str | None, evaluation: str | None
) -> None:
    data = lay(tmp_path, *names)
    expected = Found(calibration and data / calibration, evaluation and data / evaluation)
    assert roles(find("net", [tmp_path]), "net") == expected


def test_files_of_other_models_are_left_alone(tmp_path: Path) -> None:
    data = lay(tmp_path, "net2.npz", "net.txt", "network_eval.npz", "net.v2.npz", "net.npz")
    assert find("net", [tmp_path]) == [data / "net.npz"]
    assert find("ne.", [tmp_path]) == []
    assert find("net.v2", [tmp_path]) == [data / "net.v2.npz"]


def test_the_first_place_that_has_any_counts(tmp_path: Path) -> None:
    working = lay(tmp_path / "work", "net.npz", "other.npz")
    beside = lay(tmp_path / "models", "net_calib.npz")
    places = [tmp_path / "models", tmp_path / "none", tmp_path / "work"]
    assert find("net", places) == [beside / "net_calib.npz"]
    assert find("other", places) == [working / "other.npz"]


def test_two_files_for_one_role_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, "net_eval.npz", "net_test.npz")
    with pytest.raises(InputError, match=r"net_eval\.npz and .*net_test\.npz serve the same role"):
        roles(find("net", [tmp_path]), "net")
