"""The stage: its settings, what it refuses, what it records."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from exact import made_up
from finished import finish

from compressor import graph, schemes, stages
from compressor.errors import InputError, RungError
from compressor.records import Model, Pruned
from compressor.stages import Supply, prune
from compressor.stages.prune import Prune
from compressor.stages.prune.groups import Coupled
from compressor.stages.prune.surgery import shrunk

Make = Callable[..., Model]
Apply = Callable[..., Any]
TEXT = """g (float[1,3,6,6] x) => (float[1,2,6,6] y) {
    [layer1_conv] a = Conv <pads: ints = [1,1,1,1]> (x, w1, b1)
    b = Relu (a)
    [layer2_conv] c = Conv (b, w2)
    d = Relu (c)
    [head] y = Conv (d, w3)
}"""
WEIGHTS = {"w1": [32, 3, 3, 3], "b1": [32], "w2": [64, 32, 1, 1], "w3": [2, 64, 1, 1]}
QUANTIZED = "g (float[n,4] x) => (float[n,4] y) { q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z) }"


@pytest.fixture
def net(make: Make) -> Model:
    """Give three layers, of 32, 64 and 2 channels."""
    return make(TEXT, WEIGHTS)


def pruning(ratio: str, **settings: Any) -> Prune:
    return Prune.model_validate({"ratio": ratio, **settings})


def channels(path: Path) -> tuple[int, int]:
    shapes = {t.name: t.dims[0] for t in onnx.load(path).graph.initializer}
    return shapes["w1"], shapes["w2"]


def macs(first: int, second: int) -> int:
    return 36 * (first * 27 + first * second + second * 2)


def both(first: int, second: int) -> int:
    return first + second


def parameters(first: int, second: int) -> int:
    return first * 28 + first * second + second * 2


def test_the_target_settles_to_what_channels_are_rounded() -> None:
    path = Path("net.onnx")
    wanted = {"generic": 8, "x86-avx2": 8, "x86-avx512": 16, "x86-vnni": 16, "x86-amx": 16}
    wanted |= {"arm-dotprod": 8, "arm-i8mm": 8, "cuda": 32, "tensorrt": 32}
    assert {scheme.name for scheme in schemes.SCHEMES} == set(wanted)
    for scheme in schemes.SCHEMES:
        multiple = wanted[scheme.name]
        assert pruning("20%").resolve(path, scheme) == pruning("20%", multiple=multiple)
        assert pruning("20%", multiple=4).resolve(path, scheme).multiple == 4


def test_it_needs_data_that_show_what_was_lost() -> None:
    assert Prune.needs_evaluation


@pytest.mark.parametrize("of", ["macs", "parameters", "channels"])
@pytest.mark.parametrize("ratio", [0.2, 0.4])
def test_what_is_asked_for_goes(net: Model, apply: Apply, of: str, ratio: float) -> None:
    path, _ = apply(pruning(f"{ratio:.0%}", of=of, multiple=1), net)
    first, second = channels(path)
    count = {"macs": macs, "parameters": parameters, "channels": both}[of]
    whole = count(32, 64)
    steps = whole - count(31, 64), whole - count(32, 63)
    assert abs(whole - count(first, second) - ratio * whole) <= max(steps)


def test_the_record_says_what_the_files_say(net: Model, apply: Apply) -> None:
    path, did = apply(pruning("40%", repair=False), net)
    first, second = channels(path)
    assert (first % 8, second % 8) == (0, 0)
    assert isinstance(did.pruned, Pruned)
    assert did.pruned.macs == (macs(32, 64), macs(first, second))
    assert did.pruned.parameters == (parameters(32, 64), parameters(first, second))
    assert did.pruned.size_bytes == (net.path.stat().st_size, path.stat().st_size)
    assert did.pruned.nodes == (5, 5)
    assert did.pruned.channels[0] - did.pruned.channels[1] == 32 + 64 - first - second
    free = [(g.name, g.channels, g.kept) for g in did.pruned.groups if not g.stay]
    assert free == [("layer1_conv", 32, first), ("layer2_conv", 64, second)]
    assert [(g.name, g.channels, g.kept, g.macs) for g in did.pruned.groups if g.stay] == [("head", 2, None, None)]
    shares = [g.macs for g in did.pruned.groups if not g.stay]
    whole = macs(32, 64)
    assert shares == pytest.approx([1 - macs(0, 64) / whole, 1 - macs(32, 0) / whole])


def test_the_sentence_gives_the_figures_of_the_record(net: Model, apply: Apply) -> None:
    _, did = apply(pruning("40%", multiple=8), net)
    for what, (before, after) in {
        "MACs": did.pruned.macs,
        "parameters": did.pruned.parameters,
        "bytes": did.pruned.size_bytes,
    }.items():
        assert f"{100 * (before - after) / before:.1f}% of the {what}" in did.what
    before, after = did.pruned.channels
    cut = sum(group.kept < group.channels for group in did.pruned.groups if not group.stay)
    assert f"{before - after} of {before} channels, from {cut} of 2 groups" in did.what
    assert did.what.startswith(f"asked for 40% of the MACs, {1 - did.pruned.macs[1] / did.pruned.macs[0]:.1%} went; ")


def test_what_went_is_told_in_the_unit_of_the_wish(net: Model, apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"layer1_conv": 1.0, "layer2_conv": 3.0, "head": 1.0}
    monkeypatch.setattr(prune.runtime, "node_ms", lambda _path, _feeds: times)
    path, did = apply(pruning("30%", of="latency", multiple=1), net)
    first, second = (left / whole for left, whole in zip(channels(path), (32, 64), strict=True))
    gone = 1 - (first + 3 * first * second + second) / 5
    assert (did.pruned.of, did.pruned.asked, did.pruned.gone) == ("latency", 0.3, pytest.approx(gone))
    assert did.what.startswith(f"asked for 30% of the latency, {gone:.1%} went; ")
    assert any("another run may choose other channels" in note for note in did.notes)
    _, did = apply(pruning("30%", of="channels", multiple=1), net)
    kept = [group.kept for group in did.pruned.groups if not group.stay]
    assert did.pruned.gone == pytest.approx(1 - sum(kept) / 96)  # not of 98, which the 2 of the output are part of
    assert not any("another run" in note for note in did.notes)


def test_it_is_told_whether_samples_were_held_out(net: Model, tmp_path: Path) -> None:
    samples = made_up(net, 40)
    for few in (False, True):
        supply = (
            Supply(samples, samples, tmp_path / "kept") if few else Supply(*samples.split(30, 0), tmp_path / "kept")
        )
        did = finish(pruning("30%", multiple=1).apply(net, supply, tmp_path / "out.onnx"))
        assert did.pruned.repaired.held_out != few
        assert any("too few to hold any out" in note for note in did.notes) == few


def test_of_channels_the_share_is_of_those_that_can_be_removed(net: Model, apply: Apply) -> None:
    """The 2 of the output cannot be removed, and are listed."""
    _, did = apply(pruning("50%", of="channels"), net)
    assert did.pruned.channels == (98, 50)


def test_running_twice_writes_the_same_bytes(net: Model, apply: Apply) -> None:
    one, two = (apply(pruning("30%"), net, name=name).path.read_bytes() for name in ("one.onnx", "two.onnx"))
    assert one == two


@pytest.mark.parametrize(
    ("settings", "shrinks"),
    [
        ({"include": ("layer1_*",)}, [True, False]),
        ({"include": ("layer2_conv",)}, [False, True]),
        ({"exclude": ("layer1_conv",)}, [False, True]),
        ({"exclude": ("*2_conv", "head")}, [True, False]),
        ({"include": ("layer*",), "exclude": ("layer1_conv",)}, [False, True]),
    ],
)
def test_only_layers_that_are_included_and_not_excluded_shrink(
    net: Model, apply: Apply, settings: dict[str, tuple[str, ...]], shrinks: list[bool]
) -> None:
    pruning("20%", **settings).check(net.path)
    left = channels(apply(pruning("20%", multiple=8, **settings), net).path)
    assert [left[0] < 32, left[1] < 64] == shrinks


@pytest.mark.parametrize("setting", ["include", "exclude"])
def test_a_name_that_fits_nothing_is_refused_with_the_closest(net: Model, apply: Apply, setting: str) -> None:
    stage = pruning("20%", **{setting: ("layer1_*", "layer1_cnov")})
    sentence = rf"prune\.{setting}: 'layer1_cnov' fits the name of no node; the closest are 'layer1_conv', "
    with pytest.raises(InputError, match=sentence):
        stage.check(net.path)
    with pytest.raises(RungError, match=sentence):
        apply(stage, net)


def test_a_quantized_model_is_refused(make: Make, apply: Apply) -> None:
    model = make(QUANTIZED, {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8)})
    sentence = "the model is quantized already, .*: prune the float model, quantize what comes of it"
    with pytest.raises(RungError, match=sentence):
        apply(pruning("20%"), model)
    with pytest.raises(RungError, match=sentence):
        stages.removable(model.path, None)


def test_a_model_with_nothing_to_prune_is_refused(make: Make, apply: Apply) -> None:
    model = make("g (float[n,4] x) => (float[n,4] y) { y = MatMul (x, w) }", {"w": [4, 4]})
    for of in ("macs", "parameters", "channels"):
        with pytest.raises(RungError, match=f"20% of the {of}.* cannot be pruned".replace("macs", "MACs")):
            apply(pruning("20%", of=of), model)


def test_all_cannot_go(net: Model, apply: Apply) -> None:
    with pytest.raises(RungError, match=r"100% of the MACs cannot be pruned: .* is all that goes"):
        apply(pruning("100%"), net)


def test_to_prune_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        pruning("0%")


def test_a_wrong_cut_is_caught(net: Model, apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:

    def other(coupled: Coupled, removed: frozenset[int]) -> Any:
        last = coupled.groups[-1].units
        gone = removed & set(last)
        kept = [unit for unit in last if unit not in gone]
        return shrunk(coupled, removed - {min(gone)} | {kept[0]})

    monkeypatch.setattr(prune, "shrunk", other)
    with pytest.raises(RungError, match=r"output 'y' of the pruned model is not what the model computes without"):
        apply(pruning("30%"), net)


def test_a_cut_that_changes_a_shape_is_caught_in_the_same_words(
    make: Make, apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    def padded(coupled: Coupled, removed: frozenset[int]) -> Any:
        model = shrunk(coupled, removed)
        next(iter(model.graph)).attributes.add(ir.AttrInt64s("pads", [2, 2, 2, 2]))
        return model

    monkeypatch.setattr(prune, "shrunk", padded)
    net = make(TEXT.replace("float[1,2,6,6] y", "float[1,2,h,w] y"), WEIGHTS)
    with pytest.raises(RungError, match=r"'y' has shape.*; an operator was followed wrongly; .* report this as a bug$"):
        apply(pruning("30%"), net)


def test_with_what_is_named_less_can_go_and_that_is_said(net: Model, apply: Apply) -> None:
    with pytest.raises(RungError, match=r"^80% of the MACs .* is all that goes with this `include` and `exclude` when"):
        apply(pruning("80%", include=("layer1_conv",)), net)
    with pytest.raises(RungError, match=r"^100% of the MACs .* is all that goes when") as refused:
        apply(pruning("100%", multiple=1), net)
    offered = re.search(r"([\d.]+%) is all", str(refused.value))
    assert offered
    assert channels(apply(pruning(offered[1], multiple=1), net).path) == (4, 8)


def test_what_is_left_computes_what_the_model_does_without_the_dead(make: Make, apply: Apply, db: Any) -> None:
    rng = np.random.default_rng(0)
    w = {name: rng.normal(size=s).astype(np.float32) for name, s in (("w1", (16, 3, 1, 1)), ("w2", (2, 16, 1, 1)))}
    w["w1"][[1, 5, 6, 9]] = 0
    model = make("g (float[n,3,6,6] x) => (float[n,2,6,6] y) { a = Conv (x, w1) b = Tanh (a) y = Conv (b, w2) }", w)
    path, did = apply(pruning("25%", multiple=4), model)
    assert did.pruned.channels == (18, 14)
    assert db(model, path) > 100
    kept = [i for i in range(16) if i not in {1, 5, 6, 9}]
    left = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    assert np.array_equal(left["w1"], w["w1"][kept])
    assert graph.open_model(path).parameters == 12 * 5


def test_a_cut_before_a_division_is_checked_and_not_taken_for_wrong(make: Make, apply: Apply) -> None:
    text = """g (float[1,3,6,6] x) => (float[1,2,6,6] y) {
        a = Conv (x, w1)
        b = Div (a, v)
        y = Conv (b, w2)
    }"""
    divisor = np.linspace(1, 2, 8, dtype=np.float32).reshape(1, 8, 1, 1)
    net = make(text, {"w1": [8, 3, 1, 1], "v": divisor, "w2": [2, 8, 1, 1]})
    _, did = apply(pruning("25%", of="channels", multiple=1), net)
    assert did.pruned.channels == (10, 8)


def test_a_cut_that_cannot_be_checked_is_refused(make: Make, apply: Apply) -> None:
    text = """g (float[1,3,6,6] x) => (float[1,2,6,6] y) {
        a = Conv (x, w1)
        b = Div (a, a)
        y = Conv (b, w2)
    }"""
    net = make(text, {"w1": [8, 3, 1, 1], "w2": [2, 8, 1, 1]})
    with pytest.raises(RungError, match=r"cannot be checked; exclude the layers before divisions.* is not finite"):
        apply(pruning("25%", of="channels", multiple=1), net)
