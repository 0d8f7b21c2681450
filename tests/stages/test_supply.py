"""How samples are divided for stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import small
from finished import finish

from compressor.records import Progress, Tensor, Work
from compressor.samples import Samples, synthetic
from compressor.stages.supply import Supply, divided

KEPT = Path("kept")


def samples(n: int) -> Samples:
    return synthetic((Tensor("x", "float32", (1, 4)),), {"x": (1, 4)}, n, 0, {})


@pytest.mark.parametrize(("n", "held_out"), [(16, 3), (80, 16), (1000, 16)])
def test_a_fifth_is_held_out_and_16_at_most(n: int, held_out: int) -> None:
    supply = divided(samples(n), 0, KEPT, steady=True)
    assert (len(supply.calibration), len(supply.held_out)) == (n - held_out, held_out)
    assert not set(supply.calibration.indices) & set(supply.held_out.indices)


def test_of_fewer_than_16_all_serve_for_both() -> None:
    supply = divided(samples(15), 0, KEPT, steady=False)
    assert len(supply.calibration) == 15
    assert supply.calibration == supply.held_out
    assert not supply.steady


def test_what_was_learnt_is_learnt_again_only_of_something_else(tmp_path: Path) -> None:
    calls: list[str] = []
    model, other = small.classifier(tmp_path / "a.onnx"), small.classifier(tmp_path / "b.onnx", seed=1)
    one, few = (divided(samples(n), 0, tmp_path / "kept", steady=True) for n in (80, 40))

    def learn(out: Path) -> Work[None]:
        yield Progress("learn")
        calls.append(str(out))
        out.write_text(str(len(calls)))

    def learnt(supply: Supply, what: str, of: Path, settings: object) -> str:
        return finish(supply.learnt(what, of, settings, learn)).read_text()

    assert learnt(one, "curves", model, (1, 2)) == "1"
    assert learnt(one, "curves", model, (1, 2)) == "1"
    differing = [
        learnt(one, "curves", model, (1, 3)),
        learnt(one, "times", model, (1, 2)),
        learnt(one, "curves", other, (1, 2)),
        learnt(few, "curves", model, (1, 2)),
        learnt(replace(one, steady=False), "curves", model, (1, 2)),
        learnt(replace(one, scope="another"), "curves", model, (1, 2)),
    ]
    assert differing == ["2", "3", "4", "5", "6", "7"]
    (kept,) = (path for path in (tmp_path / "kept").glob("*/curves") if path.read_text() == "1")
    kept.write_text("damaged")
    assert learnt(one, "curves", model, (1, 2)) == "8"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx", "kept"]
