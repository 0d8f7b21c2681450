"""Modules made by a caller's code: which input goes where, which weights fit, and whose line an error names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import export_nets
import numpy as np
import pytest
import torch
import torch_nets
from safetensors.torch import save_file
from torch import nn

from compressor.errors import InputError, MachineError
from compressor.export import factory, make, source, weights
from compressor.export.inputs import Given, drawn
from compressor.export.program import Program, tensors
from compressor.export.source import Axis


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def made(model: str, *inputs: str, weights: Path | None = None) -> Program:
    return factory.made(source(model, weights, (inputs, ())))


def test_a_module_comes_in_training_mode_and_is_called_in_evaluation_mode() -> None:
    found = made("torch_nets:resnet", "x=2x3x8x8")
    assert "it came in training mode, and was put in evaluation mode" in found.notes
    x = drawn(found.inputs, {}, 3)["x"]
    wanted = torch_nets.resnet().eval()(torch.from_numpy(x)).detach().numpy()
    assert np.array_equal(found.outputs({"x": x})["output"], wanted)


@pytest.mark.parametrize(
    ("model", "inputs", "order", "parameters"),
    [
        ("torch_nets:Encoder", ["mask=1x4:int64", "ids=1x4:int64"], ["ids", "mask"], ("ids", "mask")),
        ("torch_nets:Encoder", ["mask=1x4:int64", "tokens=1x4:int64"], ["tokens", "mask"], ("ids", "mask")),
        ("torch_nets:Encoder", ["a=1x4:int64"], ["a"], ("ids",)),
        ("torch_nets:Recurrent", ["anything=1x4x6"], ["anything"], ("series",)),
        ("torch_nets:linear", ["x=1x5"], ["x"], ("input",)),
    ],
)
def test_inputs_find_their_parameter_by_name_or_else_by_place(
    model: str, inputs: Sequence[str], order: Sequence[str], parameters: tuple[str, ...]
) -> None:
    found = made(model, *inputs)
    assert [each.name for each in found.inputs] == order
    assert found.parameters == parameters


def test_whole_numbers_stay_below_the_smallest_table_or_what_is_said() -> None:
    assert made("torch_nets:Encoder", "ids=1x4:int64").inputs[0].limit == torch_nets.WORDS
    assert made("torch_nets:Encoder", "ids=1x4:int64:7").inputs[0].limit == 7
    drawn_ids = drawn((Given("ids", "int64", (1000,), 7),), {}, 0)["ids"]
    assert set(drawn_ids.tolist()) == set(range(7))
    assert any("--input x=1x16:int64:30522" in note for note in made("torch_nets:Fixed", "x=4x6:int64").notes)


def test_open_axes_have_the_size_of_the_input_and_another() -> None:
    program = made("torch_nets:Encoder", "ids=1x4:int64", "mask=1x4:int64")
    axes = [Axis(name, axis, symbol) for name in ("ids", "mask") for axis, symbol in ((0, "batch"), (1, "length"))]
    found = factory.opened(program, axes)
    assert (found.sizes, found.others) == ({"batch": 1, "length": 4}, {"batch": 3, "length": 5})
    with pytest.raises(InputError, match="--dynamic: both is 1 and 4"):
        factory.opened(program, [Axis("ids", 0, "both"), Axis("ids", 1, "both")])


def test_outputs_are_named_by_keys_and_places() -> None:
    one, two = torch.zeros(1), torch.ones(2)
    assert [name for name, _ in tensors({"logits": one, "more": [one, {"x": two}], "none": None, "n": 3})] == [
        *("logits", "more_0", "more_1_x")
    ]
    assert [name for name, _ in tensors((one, two))] == ["output_0", "output_1"]
    assert [name for name, _ in tensors([one])] == ["output"]


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        ("torch_nets:failing", ["x=1"], r"torch_nets.py:\d+: ValueError: no such size"),
        ("torch_nets:number", ["x=1"], "gives int, expected a torch.nn.Module"),
        ("torch_nets:none", ["x=1"], "torch_nets.py has no none"),
        ("no_such_nets:f", ["x=1"], "no_such_nets:f: no module no_such_nets; looked in"),
        ("torch_nets:Encoder", [], "forward takes ids, kinds, mask, found inputs none; give --input ids="),
        ("torch_nets:Encoder", ["a=1", "b=1", "c=1", "d=1"], "forward takes ids, kinds, mask, found inputs a, b, c, d"),
    ],
)
def test_what_the_callers_code_does_wrong_is_one_sentence(model: str, inputs: Sequence[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(model, *inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_package\n", r"oddone.py:1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:\n", r"oddone.py:1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", r"oddone.py:2: SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "oddone", raising=False)
    (tmp_path / "oddone.py").write_text(text)
    with pytest.raises(InputError, match=message):
        made("oddone:f", "x=1")


def test_a_shape_that_does_not_fit_names_the_line_of_forward() -> None:
    found = made("torch_nets:Recurrent", "x=1x4x7")
    with pytest.raises(InputError, match=r"torch_nets.py:\d+: RuntimeError: .*6.*7"):
        make.verify.outputs(found)


def test_weights_of_all_safe_kinds_fill_the_module(tmp_path: Path) -> None:
    wanted = {name: tensor + 1 for name, tensor in torch_nets.Recurrent().state_dict().items()}
    save_file(wanted, tmp_path / "w.safetensors")
    torch.save(wanted, tmp_path / "w.pt")
    torch.save({"state_dict": wanted, "epoch": 3}, tmp_path / "wrapped.pth")
    torch.save({"model": {f"module.{name}": tensor for name, tensor in wanted.items()}}, tmp_path / "parallel.pt")
    notes = {}
    for path in tmp_path.iterdir():
        module = torch_nets.Recurrent()
        notes[path.name] = " ".join(weights.fill(module, path))
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in module.state_dict().items()), path
    assert notes["w.safetensors"] == notes["w.pt"] == ""
    assert "what stands under 'state_dict'" in notes["wrapped.pth"]
    assert "under 'model'" in notes["parallel.pt"]
    assert "begin with 'module.'" in notes["parallel.pt"]


def test_a_tensor_with_two_names_is_needed_once(tmp_path: Path) -> None:
    state = torch_nets.Tied().state_dict()
    del state["other.weight"]
    save_file(state, tmp_path / "w.safetensors")
    assert weights.fill(torch_nets.Tied(), tmp_path / "w.safetensors") == []


def test_a_view_is_not_the_whole_tensor(tmp_path: Path) -> None:
    torch.save({"first": torch.ones(4)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="no weights of this module: it lacks table"):
        weights.fill(export_nets.View(), tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("export_nets:meta", "meta: weight is on the device meta, without values"),
        ("export_nets:lazy", "lazy: weight has no shape before the first call; call the module in lazy"),
        ("export_nets:refusing", r"export_nets.py:\d+: ValueError: no weights for me"),
    ],
)
def test_a_module_that_cannot_take_weights_is_refused(tmp_path: Path, model: str, message: str) -> None:
    torch.save(nn.Linear(4, 3).state_dict(), tmp_path / "w.pt")
    with pytest.raises(InputError, match=message):
        made(model, "x=1x4", weights=tmp_path / "w.pt")


def test_weights_that_are_not_the_modules_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(torch_nets.Recurrent().state_dict(), path)
    with pytest.raises(InputError, match=r"lacks words.weight, .* more and also holds cells.weight_ih_l0"):
        weights.fill(torch_nets.Encoder(), path)
    torch.save(nn.Linear(3, 2).state_dict(), path)
    with pytest.raises(InputError, match=r"'weight' has the shape \[2, 3\], the module expects \[2, 4\]"):
        weights.fill(nn.Linear(4, 2), path)


def test_a_pickled_module_is_refused_and_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(torch_nets.Recurrent(), path)
    with pytest.raises(InputError, match=r"more than tensors \(.*torch_nets.Recurrent.*state_dict\(\)"):
        weights.fill(torch_nets.Recurrent(), path)
    path.write_bytes(torch_nets.checkpoint(tmp_path / "made"))
    with pytest.raises(InputError, match=r"more than tensors \(posix.mkdir\)"):
        weights.fill(torch_nets.Recurrent(), path)
    path.write_bytes(torch_nets.plain_pickle(tmp_path / "made"))
    with pytest.raises(InputError, match="no state dict"):
        weights.fill(torch_nets.Recurrent(), path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_files_that_are_no_weights_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(InputError, match="no such file"):
        weights.fill(torch_nets.Recurrent(), path)
    for data in (b"", b"short", b"PK\x03\x04" + bytes(40), b"version https://git-lfs.github.com/spec/v1\n"):
        path.write_bytes(data)
        with pytest.raises(InputError, match=name):
            weights.fill(torch_nets.Recurrent(), path)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="holds list, expected a state dict"):
        weights.fill(torch_nets.Recurrent(), tmp_path / "list.pt")


def test_a_machine_without_torch_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "find_spec", lambda _: None)
    with pytest.raises(MachineError, match=r"needs torch.*pip install 'compressor\[torch\]'"):
        next(make.export(source("torch_nets:resnet", None), Path("x.onnx")))
