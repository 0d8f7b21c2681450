"""Torch programs as ONNX files: the numbers beside torch's own, open axes, and what is done where an exporter fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
import torch_nets
from finished import finish
from safetensors.torch import save_file
from torch import nn

from compressor import pipeline
from compressor.errors import InputError
from compressor.export import Exported, factory, make, source, verify, write

Array = npt.NDArray[np.generic]
FLOATS = np.random.default_rng(5)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Exported]:
    folder = tmp_path_factory.mktemp("exported")

    def call(model: str, inputs: Sequence[str] = (), dynamic: Sequence[str] = (), **more: Path) -> Exported:
        made = source(model, more.get("weights"), (inputs, dynamic))
        return finish(pipeline.export(made, more.get("out", folder / f"{made.name}.onnx")))

    return call


def trained(module: nn.Module, path: Path) -> nn.Module:
    """Give a module other weights than its factory's, and write them."""
    torch.manual_seed(7)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(torch.randn_like(tensor) / 10)
    save_file(module.state_dict(), path)
    return module.eval()


def run(path: Path, **feeds: Array) -> dict[str, Array]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def close(found: Array, wanted: torch.Tensor) -> bool:
    return np.allclose(found, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


def dims(path: Path) -> dict[str, list[int | str]]:
    graph = onnx.load(path).graph
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }


def test_a_transformer_keeps_two_axes_open_and_names_its_outputs(
    exported: Callable[..., Exported], tmp_path: Path
) -> None:
    net = trained(torch_nets.Encoder(), tmp_path / "w.safetensors")
    made = exported(
        "torch_nets:Encoder",
        ["mask=1x6:int64", "ids=1x6:int64"],
        ["ids:0=batch", "ids:1=length", "mask:0=batch", "mask:1=length"],
        weights=tmp_path / "w.safetensors",
    )
    assert dims(made.model.path) == {
        "ids": ["batch", "length"],
        "mask": ["batch", "length"],
        "hidden": ["batch", "length", 16],
        "pooled_mean": ["batch", 16],
    }
    ids, mask = FLOATS.integers(0, torch_nets.WORDS, (5, 9)), np.ones((5, 9), np.int64)
    mask[1, 6:] = 0
    found = run(made.model.path, ids=ids, mask=mask)
    wanted = net(torch.from_numpy(ids), mask=torch.from_numpy(mask))
    seen = mask.astype(bool)
    assert close(found["hidden"][seen], wanted["hidden"][torch.from_numpy(seen)])
    assert list(made.sqnr_db) == ["ids 1x6, mask 1x6", "ids 3x7, mask 3x7"]
    assert min(made.sqnr_db.values()) > 100
    assert (made.exporter, made.model.opset >= 18) == ("dynamo", True)


def test_an_lstm_computes_as_torch_does_and_tells_nothing_of_this_machine(
    exported: Callable[..., Exported], tmp_path: Path
) -> None:
    net = trained(torch_nets.Recurrent(), tmp_path / "w.safetensors")
    made = exported("torch_nets:Recurrent", ["x=1x7x6"], weights=tmp_path / "w.safetensors")
    assert dims(made.model.path) == {"x": ["batch", 7, 6], "output_0": ["batch", 3], "output_1": [1, "batch", 10]}
    x = FLOATS.standard_normal((4, 7, 6), np.float32)
    found, wanted = run(made.model.path, x=x), net(torch.from_numpy(x))
    assert all(close(found[f"output_{i}"], wanted[i]) for i in range(2))
    constants = map(onnx.numpy_helper.to_array, onnx.load(made.model.path).graph.initializer)
    assert any(np.array_equal(one, net.out.weight.detach().numpy()) for one in constants)
    written = made.model.path.read_bytes()
    assert not any(text.encode() in written for text in (torch_nets.__file__, torch.__file__, "self.cells(series)"))
    entries = {entry.key: entry.value for entry in onnx.load(made.model.path).metadata_props}
    assert entries == {
        "compressor.export.source": "torch_nets:Recurrent",
        "compressor.export.exporter": "dynamo",
        "compressor.export.torch": torch.__version__,
    }


def test_a_program_of_torch_export_is_taken_as_it_is(exported: Callable[..., Exported], saved: Path) -> None:
    made = exported(str(saved))
    (name,) = (tensor.name for tensor in made.model.inputs)
    assert dims(made.model.path) == {name: ["batch", 3, 8, 8], "output": ["batch", 4]}
    x = FLOATS.standard_normal((9, 3, 8, 8), np.float32)
    assert close(run(made.model.path, **{name: x})["output"], torch_nets.resnet().eval()(torch.from_numpy(x)))
    assert list(made.sqnr_db) == [f"{name} 4x3x8x8", f"{name} 5x3x8x8"]


def test_what_the_newer_exporter_cannot_do_the_older_one_does_and_says_what_it_froze(
    exported: Callable[..., Exported],
) -> None:
    made = exported("torch_nets:Deciding", ["x=1x5"])
    assert made.exporter == "torchscript"
    assert dims(made.model.path) == {"x": ["batch", 5], "output": ["batch", 5]}
    x = FLOATS.standard_normal((4, 5), np.float32)
    assert np.array_equal(run(made.model.path, x=x)["output"], x * 2)
    notes = "\n".join(made.notes)
    assert "the dynamo exporter with x:0 open failed: " in notes
    assert "what torch_nets.py:" in notes


def test_where_the_first_axis_cannot_stay_open_the_file_is_fixed_and_says_so(
    exported: Callable[..., Exported],
) -> None:
    made = exported("torch_nets:Fixed", ["x=4x6"])
    assert dims(made.model.path) == {"x": [4, 6], "output": [4, 6]}
    assert " ".join(made.notes).count("exporter with x:0 open") == 2


def test_where_somebody_says_which_axes_are_open_no_other_file_is_tried() -> None:
    asked = source("torch_nets:Fixed", None, (["x=4x6"], ["x:1=width"]))
    tried = [(program.inputs[0].shape, exporter) for program, exporter in make._tries(asked, factory.made(asked))]
    assert tried == [((4, "width"), "dynamo"), ((4, "width"), "torchscript")]
    asked = source("torch_nets:Fixed", None, (["x=4x6"], []))
    tried = [(program.inputs[0].shape, exporter) for program, exporter in make._tries(asked, factory.made(asked))]
    assert [shape for shape, _ in tried] == [("batch", 6), ("batch", 6), (4, 6), (4, 6)]


@pytest.fixture
def other() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,5] x) => (float[2,2] output) '
        "{ z = Constant <value_ints: ints = [0]> () e = Constant <value_ints: ints = [2]> () "
        "a = Constant <value_ints: ints = [1]> () output = Slice (x, z, e, a) }"
    )


def test_a_file_that_computes_something_else_is_not_given_out(tmp_path: Path, other: onnx.ModelProto) -> None:
    program = factory.made(source("torch_nets:linear", None, (["x=2x5"], [])))
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"differs from the module at x 2x5 \(output: SQNR -?\d+ dB\)"):
        list(make._compared(program, tmp_path / "other.onnx", steady=True))


def test_a_file_at_the_output_stays_where_none_is_written_that_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: onnx.ModelProto
) -> None:
    def wrong(_program: object, target: write.Target) -> list[str]:
        onnx.save(other, target.out)
        return []

    out = tmp_path / "net.onnx"
    out.write_bytes(b"an earlier file")
    monkeypatch.setattr(write, "EXPORTERS", {"dynamo": wrong})
    with pytest.raises(InputError, match=r"cannot be exported: .*differs from the module at x 2x5"):
        list(make.export(source("torch_nets:linear", None, (["x=2x5"], [])), out))
    assert out.read_bytes() == b"an earlier file"
    assert list(tmp_path.iterdir()) == [out]


def test_a_module_that_draws_numbers_is_known_by_its_outputs() -> None:
    assert not verify.repeats(factory.made(source("torch_nets:Random", None, (["x=2x5"], []))))
    assert verify.repeats(factory.made(source("torch_nets:linear", None, (["x=2x5"], []))))


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("wanted", "found", "why"),
    [
        (np.float32([1, NAN, INF, -INF]), np.float32([1, NAN, INF, -INF]), ""),
        (np.float32([1, NAN]), np.float32([1, 2]), "not finite in other places"),
        (np.float32([1, INF]), np.float32([1, -INF]), "not finite in other places"),
        (np.float32([1, 2]), np.float32([1, NAN]), "not finite in other places"),
        (np.float32([1, 2]), np.float32([1, 2.5]), "SQNR 13 dB"),
        (np.float32([1, 2]), np.float64([1, 2]), "float64 of shape (2,), expected float32 of shape (2,)"),
        (np.int64([1, 2]), np.int32([1, 2]), "int32 of shape (2,), expected int64 of shape (2,)"),
        (np.float32([[1, 2]]), np.float32([1, 2]), "float32 of shape (2,), expected float32 of shape (1, 2)"),
        (np.arange(999), np.arange(999) + (np.arange(999) == 7), "1 of 999 values differ"),
        (np.arange(1000), np.arange(1000) + (np.arange(1000) == 7), ""),
        (np.zeros(1000, bool), np.arange(1000) < 2, "2 of 1000 values differ"),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), ""),
    ],
)
def test_an_output_differs_in_its_type_its_shape_what_is_not_finite_or_its_values(
    wanted: Array, found: Array, why: str
) -> None:
    assert verify._differing(wanted, found) == why


def test_a_module_that_gives_nothing_finite_is_refused() -> None:
    program = factory.made(source("export_nets:Nowhere", None, (["x=2x5"], [])))
    with pytest.raises(InputError, match="output output is nowhere finite"):
        verify.outputs(program)
    program = factory.made(source("export_nets:Partly", None, (["x=2x5"], [])))
    assert verify.odd(verify.outputs(program)) == ["output_0"]
