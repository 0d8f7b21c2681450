from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compressor import runtime
from compressor.errors import InputError, MachineError, RungError

OPTIONS = runtime.options(1, spinning=False)
X = np.float32([[3, -4, 0, 0]])


def write(path: Path, body: str, outputs: str = "float[1,4] y", weights: Mapping[str, Any] | None = None) -> Path:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[1,4] x) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    onnx.save(model, path)
    return path


def compared(folder: Path, one: str, two: str, outputs: str = "float[1,4] y", feeds: Any = (X,)) -> Any:
    paths = [write(folder / f"{i}.onnx", body, outputs) for i, body in enumerate((one, two))]
    return returned(runtime.compare(*paths, [{"x": x} for x in feeds]))


def returned(work: Any) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value


def constant(name: str, value: str) -> str:
    return f"{name} = Constant<value_float={value}>() "


def test_equal_outputs_give_200_db(tmp_path: Path) -> None:
    assert compared(tmp_path, "y = Relu(x)", "y = Relu(x)") == {"y": 200.0}


def test_sqnr_is_signal_over_noise_summed_over_all_feeds(tmp_path: Path) -> None:
    off = constant("c", "0.1") + "y = Add(x, c)"
    feeds = (X, np.float32([[1, 0, 0, 0]]))
    signal, noise = 3**2 + 4**2 + 1, 8 * 0.1**2
    expected = 10 * math.log10(signal / noise)
    assert compared(tmp_path, "y = Identity(x)", off, feeds=feeds)["y"] == pytest.approx(expected, abs=1e-4)


def test_a_doubled_output_has_0_db_and_noise_without_signal_the_least(tmp_path: Path) -> None:
    assert compared(tmp_path, "y = Identity(x)", "y = Add(x, x)")["y"] == pytest.approx(0)
    zero = np.zeros((1, 4), np.float32)
    off = constant("c", "1.0") + "y = Add(x, c)"
    assert compared(tmp_path, "y = Identity(x)", off, feeds=(zero,))["y"] == -200


def test_outputs_of_every_type_are_compared_each_by_itself(tmp_path: Path) -> None:
    outputs = "float[1,4] y, int64[1,4] n, bool[1,4] b, string[1,4] s"
    rest = "n = Cast<to=7>(m) b = Cast<to=9>(m) s = Cast<to=8>(m)"
    found = compared(tmp_path, f"y = Abs(x) m = Identity(x) {rest}", f"y = Abs(x) m = Relu(x) {rest}", outputs)
    # x is 3, -4, 0, 0 and m loses the -4: of the numbers 9 + 16 over 16, of the booleans two over one, of the four
    # texts one differs
    expected = {"y": math.inf, "n": 25 / 16, "b": 2 / 1, "s": 4 / 1}
    assert found == {name: pytest.approx(min(200, 10 * math.log10(ratio))) for name, ratio in expected.items()}


def test_text_that_differs_everywhere_has_0_db(tmp_path: Path) -> None:
    one, two = (f"m = {op}(x) y = Cast<to=8>(m)" for op in ("Exp", "Cos"))
    assert compared(tmp_path, one, two, "string[1,4] y", feeds=(X + 5,))["y"] == 0


def test_half_precision_is_squared_without_overflow(tmp_path: Path) -> None:
    body = constant("c", "1000.0") + "m = Mul(x, c) y = Cast<to=10>(m)"
    off = constant("c", "1001.0") + "m = Mul(x, c) y = Cast<to=10>(m)"
    found = compared(tmp_path, body, off, "float16[1,4] y")
    assert found["y"] == pytest.approx(60, abs=3)


def test_an_output_of_another_type_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "one.onnx", "y = Relu(x)")
    two = write(tmp_path / "two.onnx", "y = Cast<to=11>(x)", "double[1,4] y")
    with pytest.raises(RungError, match="output 'y' has type float64, expected float32"):
        returned(runtime.compare(one, two, [{"x": X}]))


def test_an_output_that_is_gone_or_new_or_has_another_shape_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "one.onnx", "y = Relu(x) z = Neg(x)", "float[1,4] y, float[1,4] z")
    two = write(tmp_path / "two.onnx", "y = Relu(x)")
    with pytest.raises(RungError, match="output 'z' is gone"):
        returned(runtime.compare(one, two, [{"x": X}]))
    with pytest.raises(RungError, match="output 'z' is new"):
        returned(runtime.compare(two, one, [{"x": X}]))
    with pytest.raises(RungError, match=r"output 'y' has shape \(4, 1\), expected \(1, 4\)"):
        compared(tmp_path, "y = Transpose<perm=[0,1]>(x)", "y = Transpose<perm=[1,0]>(x)", "float[a,b] y")


@pytest.mark.parametrize("worse", ["Log", "Sqrt"])
def test_values_that_are_no_longer_finite_are_refused(worse: str, tmp_path: Path) -> None:
    with pytest.raises(RungError, match="output 'y' is not finite where the original's is"):
        compared(tmp_path, "y = Relu(x)", f"y = {worse}(x)")


def test_what_is_not_finite_in_the_original_is_left_out(tmp_path: Path) -> None:
    off = constant("c", "0.5") + "l = Log(x) y = Add(l, c)"
    expected = 10 * math.log10(math.log(3) ** 2 / 0.5**2)
    assert compared(tmp_path, "y = Log(x)", off)["y"] == pytest.approx(expected, abs=1e-4)


def test_the_worst_output_is_one_with_a_fraction_where_there_is_any(tmp_path: Path) -> None:
    outputs = "float[1,4] y, float[1,4] z, int64[1,4] n"
    body = "y = {}(x) z = Identity(x) m = {}(x) n = Cast<to=7>(m)"
    one = write(tmp_path / "one.onnx", body.format("Abs", "Neg"), outputs)
    two = write(tmp_path / "two.onnx", body.format("Relu", "Identity"), outputs)
    # x is 3, -4, 0, 0: y loses the 4 of 3 and 4, z is equal, n has another sign everywhere
    found = returned(runtime.worst_db(one, two, [{"x": X}]))
    assert found == pytest.approx(10 * math.log10(25 / 16), abs=1e-4)
    whole = "int64[1,4] n, int64[1,4] k"
    body = "m = {}(x) n = Cast<to=7>(m) k = Cast<to=7>(x)"
    one = write(tmp_path / "one.onnx", body.format("Abs"), whole)
    two = write(tmp_path / "two.onnx", body.format("Relu"), whole)
    one_in_four = 20 + 10 * math.log10((1 / 5) / (1 / 4))  # one in five is 20 dB
    assert returned(runtime.worst_db(one, two, [{"x": X}])) == pytest.approx(one_in_four, abs=1e-4)
    assert returned(runtime.worst_db(one, two, [])) == 200


def test_classes_that_are_all_wrong_are_not_hidden_by_an_output_that_is_right(tmp_path: Path) -> None:
    outputs = "float[1,4] z, int64[1] n"
    one = write(tmp_path / "one.onnx", "z = Identity(x) n = ArgMax<axis=1, keepdims=0>(x)", outputs)
    two = write(tmp_path / "two.onnx", "z = Identity(x) n = ArgMin<axis=1, keepdims=0>(x)", outputs)
    assert returned(runtime.worst_db(one, two, [{"x": X}])) < 20


def test_one_great_sample_does_not_hide_that_all_others_are_wrong(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.onnx", "y = Identity(x)"), write(tmp_path / "two.onnx", "y = Clip(x, c)")
    clip = onnx.load(two)
    clip.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(50), "c"))  # all below becomes 50
    onnx.save(clip, two)
    feeds = [{"x": X}, {"x": X}, {"x": np.float32([[9e5] * 4])}]
    assert runtime.IDENTICAL_DB > returned(runtime.compare(one, two, feeds))["y"] > 60
    assert returned(runtime.worst_db(one, two, feeds)) < 0


def test_another_shape_is_as_bad_as_can_be_whatever_was_added_before_or_after() -> None:
    same = np.float32([1, 2])
    for wanted, found in ((same, np.float32([1])), (np.array(["a", "b"]), np.array(["a"])), (same, same[None])):
        for order in ([(same, same), (wanted, found)], [(wanted, found), (same, same)]):
            distance = runtime.distance.Distance()
            for pair in order:
                distance = distance.plus(*pair)
            assert distance.db == -200


def test_progress_counts_the_feeds(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "y = Relu(x)")
    assert [step.done for step in runtime.compare(path, path, [{"x": X}] * 3)] == [0, 1, 2]


def test_a_provider_that_is_not_here_is_the_machines_lack(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "y = Relu(x)")
    with pytest.raises(
        MachineError, match=r"NoSuchExecutionProvider is not available here; found .*CPUExecutionProvider"
    ):
        runtime.load(path, {**OPTIONS, "providers": "NoSuchExecutionProvider,CPUExecutionProvider"})


def listed(provider: runtime.session.Provider) -> dict[str, str]:
    return runtime.options(1, spinning=False, provider=provider)


def test_each_provider_leaves_to_others_what_it_does_not_take() -> None:
    assert {name: listed(name)["providers"].split(",") for name in runtime.session.PROVIDERS} == {
        "cpu": ["CPUExecutionProvider"],
        "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
        "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
        "tensorrt-rtx": ["NvTensorRTRTXExecutionProvider", "CPUExecutionProvider"],
    }


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_is_not_installed_is_named_with_what_is_and_what_to_install(
    provider: runtime.session.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    name = listed(provider)["providers"].split(",")[0]
    with pytest.raises(MachineError, match=rf"^{name} is not .* found CPUEx.*; .*pip install 'onnxruntime-gpu\["):
        runtime.session.check(provider)


LOG = """\x1b[1;31m2026-11-30 [E:onnxruntime:Default, x.cc:1 operator()] FAIL : Failed to load library cuda.so{}
\x1b[m\x1b[0;93m2026-11-30 [W:onnxruntime:Default, y.cc:2 Create] Failed to create CUDAExecutionProvider. Use it.\x1b[m
"""


def fallen_back(monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    """Make ONNX Runtime do as it does where CUDA's libraries do not load: log it, and take the CPU."""
    made = onnxruntime.InferenceSession

    def session(model: Any, options: Any, *, providers: list[str], enable_fallback: int) -> Any:
        assert not enable_fallback  # else it also starts a failing session anew
        os.write(2, log.encode())
        return made(model, options, providers=providers[1:])

    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (LOG.format(" with error: libcublasLt.so.13: no such file"), "libcublasLt.so.13: no such file"),
        (LOG.format(""), "Failed to create CUDAExecutionProvider. Use it."),
        ("something else", "it logs no reason"),
    ],
)
def test_a_session_that_fell_back_to_the_cpu_is_an_error_with_the_logged_reason(
    log: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.onnx", "y = Relu(x)")
    fallen_back(monkeypatch, log)
    for opening in (lambda: runtime.load(path, listed("cuda")), lambda: runtime.session.check("cuda")):
        with pytest.raises(MachineError) as raised:
            opening()
        assert str(raised.value) == (
            f"CUDAExecutionProvider is left out by ONNX Runtime, which takes CPUExecutionProvider: {reason}; "
            "install what it needs, or set another engine.onnxruntime.provider"
        )


def test_what_is_said_after_a_provider_failed_reaches_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fallen_back(monkeypatch, LOG)
    with pytest.raises(MachineError):
        runtime.session.check("cuda")
    os.write(2, b"later")
    assert capfd.readouterr().err == f"{LOG}later"  # once: it is not told again when it is asked for


def test_a_provider_that_throws_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no CUDA-capable device is detected")

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed("tensorrt")["providers"].split(","))
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    with pytest.raises(MachineError, match=r"^TensorrtExecutionProvider cannot .*no CUDA-capable device is detected; "):
        runtime.session.check("tensorrt")


def test_a_provider_that_runs_no_node_fails_the_rung(tmp_path: Path) -> None:
    azure = "AzureExecutionProvider"  # it is installed, for remote models only
    if azure not in onnxruntime.get_available_providers():
        pytest.skip(f"this ONNX Runtime has no {azure}")
    path = write(tmp_path / "m.onnx", "a = Relu(x) y = Exp(a)")
    with pytest.raises(RungError, match=rf"^{azure} runs none of the 2 nodes of m\.onnx; "):
        runtime.load(path, {**OPTIONS, "providers": f"{azure},CPUExecutionProvider"})


def test_nodes_are_counted_by_provider_and_operator(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "a = Relu(x) b = Exp(a) y = Relu(b)")
    session = runtime.load(path, {**OPTIONS, "session.record_ep_graph_assignment_info": "1"})
    assert session.placed() == {"CPUExecutionProvider": {"Relu": 2, "Exp": 1}}


def test_a_plugin_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.session, "_PLUGIN", "no_such_module")
    with pytest.raises(MachineError, match=r"^NvTensorRTRTX\w+ is not .*CPUEx.*; pip install 'compressor\[tensorrt"):
        runtime.session.check("tensorrt-rtx")


def test_a_plugin_without_its_driver_or_device_is_the_machines_lack(tmp_path: Path) -> None:
    """Really registered, where it is installed."""
    plugin = pytest.importorskip("onnxruntime_ep_nv_tensorrt_rtx", reason="TensorRT-RTX's plugin is not installed")
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has an NVIDIA GPU")
    assert plugin.get_ep_name() == "NvTensorRTRTXExecutionProvider"
    path = write(tmp_path / "m.onnx", "y = Relu(x)")
    for opening in (lambda: runtime.load(path, listed("tensorrt-rtx")), lambda: runtime.session.check("tensorrt-rtx")):
        with pytest.raises(MachineError, match=r"^NvTensorRTRTXExecutionProvider.* NVIDIA GPU .*driver"):
            opening()


class Plugin:
    """The wheel's module."""

    def get_library_path(self) -> str:
        return "plugin.so"


@pytest.mark.parametrize("twice", [False, True])
def test_a_plugin_that_finds_no_device_says_so_at_every_try(twice: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    def register(name: str, path: str) -> None:
        assert (name, path) == ("NvTensorRTRTXExecutionProvider", "plugin.so")
        if twice:
            raise RuntimeError(f"EP library is already registered under {name}")

    monkeypatch.setattr(importlib, "import_module", lambda _: Plugin())
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register)
    with pytest.raises(MachineError, match=r"no device of this machine can run it; expected an NVIDIA GPU .*found CPU"):
        runtime.session.check("tensorrt-rtx")


def test_a_file_that_onnx_runtime_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(RungError, match=r"^ONNX Runtime could not load broken.onnx: .+$"):
        runtime.load(tmp_path / "broken.onnx", OPTIONS)


def test_wrong_feeds_fail_the_rung_and_are_the_callers_fault_at_the_start(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "y = Relu(x)")
    wrong = {"x": np.zeros((1, 5), np.float32)}
    with pytest.raises(RungError, match=r"could not run it: .*Got: 5 Expected: 4"):
        runtime.load(path, OPTIONS)(wrong)
    with pytest.raises(InputError, match=r"m\.onnx: .*; the model must run in ONNX Runtime before"):
        runtime.check_runs(path, wrong)


def test_check_runs_gives_the_outputs(tmp_path: Path) -> None:
    found = runtime.check_runs(write(tmp_path / "m.onnx", "y = Relu(x)"), {"x": X})
    np.testing.assert_array_equal(found["y"], [[3, 0, 0, 0]])


def test_the_elements_of_a_sequence_are_outputs(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "y = SequenceConstruct(x, x)", "seq(float[1,4]) y")
    found = runtime.check_runs(path, {"x": X})
    assert found.keys() == {"y[0]", "y[1]"}
    for each in found.values():
        np.testing.assert_array_equal(each, X)


def test_a_closed_session_cannot_be_called(tmp_path: Path) -> None:
    session = runtime.load(write(tmp_path / "m.onnx", "y = Relu(x)"), OPTIONS)
    session.close()
    with pytest.raises(AttributeError):
        session({"x": X})


def test_options_reach_the_session() -> None:
    made = runtime.session._session_options({**runtime.options(3, spinning=True), "session.disable_quant_qdq": "1"})
    assert (made.intra_op_num_threads, made.inter_op_num_threads) == (3, 1)
    assert made.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert made.get_session_config_entry("session.disable_quant_qdq") == "1"


QDQ = """q = QuantizeLinear(x, s, zu) d = DequantizeLinear(q, s, zu) w = DequantizeLinear(W, s, zs)
m = MatMul(d, w) r = QuantizeLinear(m, s, zu) e = DequantizeLinear(r, s, zu) y = MatMul(e, F)"""
QDQ_WEIGHTS = {
    "W": np.eye(4, dtype=np.int8) * 40,
    "F": np.eye(4, dtype=np.float32),
    "s": np.array(0.05, np.float32),
    "zu": np.array(128, np.uint8),
    "zs": np.array(0, np.int8),
}


def test_audit_counts_integer_and_float_nodes_and_pairs_left_over(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", QDQ, weights=QDQ_WEIGHTS)
    found = runtime.audit(path, OPTIONS, {"other": "because"})
    assert (found.integer_nodes, found.float_nodes, found.qdq_left) == (1, 1, 2)
    assert found.integer == {"QLinearMatMul": 1}
    assert found.excluded == {"other": "because"}


def test_audit_names_what_blocks_a_pair_and_leaves_the_boundary_out(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", QDQ, weights=QDQ_WEIGHTS)
    # x is quantized for the first MatMul, which is needed; m is dequantized for the second
    assert runtime.audit(path, OPTIONS, {}).blocked == {"m": "its reader y (MatMul) stays float"}


NAMED = """[q] q = QuantizeLinear(x, s, zu) [d] d = DequantizeLinear(q, s, zu) [p] p = HardSwish(d)
[pq] pq = QuantizeLinear(p, s, zu) [pd] pd = DequantizeLinear(pq, s, zu) [wd] wd = DequantizeLinear(W, s, zs)
[first] m = MatMul(pd, wd) [mq] mq = QuantizeLinear(m, s, zu) [md] md = DequantizeLinear(mq, s, zu)
[turn] t = Transpose<perm=[1,0]>(md) [last] u = MatMul(F, t) [back] v = Transpose<perm=[1,0]>(u)
[yq] yq = QuantizeLinear(v, s, zu) [yd] y = DequantizeLinear(yq, s, zu)"""


def test_a_blocker_is_an_operator_without_kernel_or_a_node_behind_nodes_that_only_move_values(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", NAMED, weights=QDQ_WEIGHTS)
    found = runtime.audit(path, OPTIONS, {"last": "it is the last"})
    assert found.integer == {"QLinearMatMul": 1}
    assert found.blocked == {
        "x": "HardSwish has no integer kernel",
        "p": "HardSwish has no integer kernel",
        "t": "its reader last (MatMul) was left float (it is the last)",
        "u": "its source last (MatMul) was left float (it is the last)",
    }


def test_a_pair_between_two_types_is_called_so(tmp_path: Path) -> None:
    body = """q = QuantizeLinear(x, s, zu) d = DequantizeLinear(q, s, zu)
    r = QuantizeLinear(d, s2, zs) y = DequantizeLinear(r, s2, zs)"""
    path = write(tmp_path / "m.onnx", body, weights={**QDQ_WEIGHTS, "s2": np.array(0.1, np.float32)})
    assert set(runtime.audit(path, OPTIONS, {}).blocked.values()) == {
        "it is quantized again, with another scale or type"
    }


def test_a_convolution_in_another_layout_fuses_whole_and_nothing_blocks(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
      q = QuantizeLinear(x, s, zu) d = DequantizeLinear(q, s, zu) w = DequantizeLinear(W, s, zs)
      c = Conv<pads=[1,1,1,1]>(d, w) r = QuantizeLinear(c, s, zu) y = DequantizeLinear(r, s, zu) }"""
    model = onnx.parser.parse_model(text)
    weights = {**QDQ_WEIGHTS, "W": np.ones((4, 3, 3, 3), np.int8)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, tmp_path / "m.onnx")
    found = runtime.audit(tmp_path / "m.onnx", OPTIONS, {})
    assert (found.integer, found.qdq_left, found.blocked) == ({"QLinearConv": 1}, 2, {})


def test_emulated_options_compute_the_same_file_in_float(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", QDQ, weights=QDQ_WEIGHTS)
    assert runtime.audit(path, runtime.emulated(OPTIONS), {}).integer_nodes == 0


def test_saturation_is_what_an_integer_product_of_numpy_says() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(200, 256, (8, 256), np.uint8), rng.integers(100, 128, (256, 8), np.int8)
    text = '<ir_version: 8, opset_import: ["": 13]> g (uint8[8,256] a, int8[256,8] b) => (int32[8,8] y)'
    model = onnx.parser.parse_model(f"{text} {{ y = MatMulInteger(a, b) }}")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"a": left, "b": right})
    assert runtime.saturates() == bool(np.any(found != left.astype(np.int32) @ right.astype(np.int32)))


def test_the_cpu_is_a_provider_everywhere() -> None:
    assert "CPUExecutionProvider" in runtime.providers()
