"""The engine above its driver: what is loaded, which profile runs, what stands on the stream, what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_driver import ENGINE_BYTES, GPU_MS, FakeDriver, Net

from compressor.engines.tensorrt.choice import choose
from compressor.engines.tensorrt.driver import Io, Loaded, Present
from compressor.engines.tensorrt.execution import Execution, open_engine
from compressor.engines.tensorrt.record import Bound, Range, Record
from compressor.errors import InputError, MachineError, RungError
from compressor.records import OnDevice

PRESENT = Present("NVIDIA A10G", "8.6", "11.4.0.106")
FLOAT = np.float32


def batches(least: int, best: int, most: int, *rest: int) -> Range:
    return (least, *rest), (best, *rest), (most, *rest)


def doubled(*profiles: Range, most: Mapping[str, int] | None = None) -> Net:
    """An engine that gives 2 x + 1 of a batch of threes."""
    ios = (Io("x", "float32", (-1, 3), is_input=True), Io("y", "float32", (-1, 3), is_input=False))
    return Net(
        Loaded(ios, tuple({"x": profile} for profile in profiles)),
        infer=lambda shapes: {"y": shapes["x"]},
        compute=lambda feeds: {"y": feeds["x"] * FLOAT(2) + FLOAT(1)},
        most={"y": 12 * profiles[0][2][0]} if most is None and len(profiles) == 1 else most or {},
    )


WIDE = batches(1, 8, 32, 3)


def record(net: Net, content: bytes, **changed: Any) -> Record:
    bounds = {
        kind: tuple(Bound(name=io.name, dtype=io.dtype, shape=io.shape) for io in net.loaded.ios if io.is_input is kind)
        for kind in (True, False)
    }
    return Record(
        file="model.a10g.engine",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        provider="tensorrt",
        version="11.4.0.99",
        devices=("a10g", "l4"),
        capabilities=("8.6", "8.9"),
        precision="fp16",
        computes="fp16",
        profiles=tuple(net.loaded.profiles),
        inputs=bounds[True],
        outputs=bounds[False],
        onnx_sha256="0" * 64,
        flags=(),
        build_s=1.0,
    ).model_copy(update=changed)


Opened = Callable[..., tuple[Execution, FakeDriver]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def make(net: Net, *, cuda_graph: bool = False, **changed: Any) -> tuple[Execution, FakeDriver]:
        path = tmp_path / "model.a10g.engine"
        path.write_bytes(b"an engine")
        driver = FakeDriver(net, PRESENT)
        return open_engine(path, record(net, b"an engine", **changed), driver, cuda_graph=cuda_graph), driver

    return make


def ramp(batch: int) -> np.ndarray[Any, Any]:
    return np.arange(batch * 3, dtype=FLOAT).reshape(batch, 3)


def test_outputs_are_those_of_each_call_and_stay(opened: Opened) -> None:
    session, _ = opened(doubled(WIDE))
    calls = {batch: session({"x": ramp(batch) - batch})["y"] for batch in (1, 32, 5)}
    for batch, output in calls.items():
        np.testing.assert_array_equal(output, 2 * (ramp(batch) - batch) + 1)


def two_inputs() -> Net:
    ios = (
        Io("b", "int64", (2,), is_input=True),
        Io("a", "bool", (-1,), is_input=True),
        Io("sum", "int64", (2,), is_input=False),
        Io("not", "bool", (-1,), is_input=False),
    )
    profile = {"a": batches(1, 2, 4), "b": batches(2, 2, 2)}
    return Net(
        Loaded(ios, (profile,)),
        infer=lambda shapes: {"not": shapes["a"], "sum": (2,)},
        compute=lambda feeds: {"not": ~feeds["a"], "sum": feeds["b"] + feeds["a"].sum()},
    )


def test_a_call_is_one_row_of_copies_run_and_copies_and_one_wait(opened: Opened) -> None:
    session, driver = opened(two_inputs())
    driver.calls.clear()
    session({"a": np.array([True, False]), "b": np.array([2**40, -1])})
    on_stream = driver.names("upload", "start", "execute", "launch", "stop", "download", "synchronise", "elapsed_ms")
    assert on_stream == [
        ("upload", "b"),
        ("upload", "a"),
        ("start",),
        ("execute", "0"),
        ("stop",),
        ("download", "sum"),
        ("download", "not"),
        ("synchronise",),
        ("elapsed_ms",),
    ]


def test_integers_of_64_bits_and_booleans_pass_whatever_the_order_of_the_feeds(opened: Opened) -> None:
    session, _ = opened(two_inputs())
    for feeds in ({"a": np.array([True, False, True]), "b": np.array([2**40, -1])},):
        found = session(dict(reversed(feeds.items())))
        np.testing.assert_array_equal(found["not"], [False, True, False])
        np.testing.assert_array_equal(found["sum"], [2**40 + 2, 1])


def test_inputs_that_are_not_contiguous_pass(opened: Opened) -> None:
    session, _ = opened(doubled(WIDE))
    turned = np.arange(12, dtype=FLOAT).reshape(3, 4).T
    np.testing.assert_array_equal(session({"x": turned})["y"], 2 * turned + 1)


def test_the_time_of_the_gpu_is_that_of_the_last_call(opened: Opened) -> None:
    session, _ = opened(doubled(WIDE))
    assert isinstance(session, OnDevice)
    assert np.isnan(session.gpu_ms)
    session({"x": ramp(1)})
    assert session.gpu_ms == GPU_MS


@pytest.mark.parametrize(
    ("batch", "profile"),
    [(1, 1), (2, 2), (4, 2), (5, 0), (32, 0)],
)
def test_the_narrowest_profile_that_takes_the_shape_runs(opened: Opened, batch: int, profile: int) -> None:
    session, driver = opened(doubled(batches(1, 8, 32, 3), batches(1, 1, 1, 3), batches(1, 2, 4, 3)))
    assert driver.names("context") == [("context", "0"), ("context", "1"), ("context", "2")]
    driver.calls.clear()
    np.testing.assert_array_equal(session({"x": ramp(batch)})["y"], 2 * ramp(batch) + 1)
    assert driver.names("execute") == [("execute", str(profile))]
    assert not driver.names("context")


def test_of_equally_wide_profiles_the_one_built_nearest_is_chosen() -> None:
    profiles = [{"x": batches(1, 2, 8, 3)}, {"x": batches(1, 7, 8, 3)}]
    assert [choose(profiles, {"x": (batch, 3)}) for batch in (1, 4, 5, 8)] == [0, 0, 1, 1]
    assert choose(profiles[:1] * 2, {"x": (4, 3)}) == 0
    assert choose([{"x": batches(1, 4, 32, 3)}, {"x": batches(1, 1, 5, 3)}], {"x": (4, 3)}) == 1


def test_a_profile_must_take_all_inputs() -> None:
    both = {"x": batches(1, 1, 4), "y": batches(1, 1, 4)}
    assert choose([both | {"x": batches(1, 1, 2)}, both], {"x": (3,), "y": (1,)}) == 1


def test_a_shape_outside_every_profile_is_refused_with_what_they_take(opened: Opened) -> None:
    session, driver = opened(doubled(batches(1, 8, 32, 3), batches(64, 64, 64, 3)))
    driver.calls.clear()
    with pytest.raises(RungError) as refused:
        session({"x": ramp(40)})
    assert "profile 0 takes x from 1x3 to 32x3, found 40x3" in str(refused.value)
    assert "profile 1 takes x 64x3, found 40x3" in str(refused.value)
    with pytest.raises(RungError, match="found 1x3x1"):
        session({"x": ramp(1)[..., None]})
    assert not driver.calls
    np.testing.assert_array_equal(session({"x": ramp(64)})["y"], 2 * ramp(64) + 1)


def test_buffers_are_taken_once_and_for_the_largest_shapes(opened: Opened) -> None:
    session, driver = opened(doubled(WIDE, most={"y": 500}))
    assert driver.device_bytes() == [32 * 3 * 4, 500]
    driver.calls.clear()
    for batch in (32, 1, 7):
        session({"x": ramp(batch)})
    assert not driver.names("allocate", "pinned", "free", "bind")


def test_an_output_whose_size_nobody_bounds_grows_and_gives_back_what_it_had(opened: Opened) -> None:
    ios = (Io("x", "float32", (-1,), is_input=True), Io("y", "float32", (-1,), is_input=False))
    net = Net(  # the smaller the input, the larger the output
        Loaded(ios, ({"x": batches(1, 1, 10)},)),
        infer=lambda shapes: {"y": (100 // shapes["x"][0],)},
        compute=lambda feeds: {"y": np.full(100 // len(feeds["x"]), feeds["x"][0], FLOAT)},
    )
    session, driver = opened(net)
    assert driver.device_bytes() == [40, 40]
    for length in (10, 2, 1, 10):
        found = session({"x": np.full(length, length, FLOAT)})["y"]
        np.testing.assert_array_equal(found, np.full(100 // length, length))
    assert driver.device_bytes() == [40, 400]


def test_shapes_are_settled_only_when_they_change(opened: Opened) -> None:
    session, driver = opened(doubled(WIDE))
    driver.calls.clear()
    for batch in (2, 2, 3, 3, 2):
        session({"x": ramp(batch)})
    assert driver.names("set_shape") == [
        ("set_shape", "x", "2x3"),
        ("set_shape", "x", "3x3"),
        ("set_shape", "x", "2x3"),
    ]
    assert len(driver.names("shapes")) == 3


@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({"x": np.zeros((1, 3))}, "input 'x': expected float32, found float64"),
        ({"y": np.zeros((1, 3), FLOAT)}, "inputs: expected x; found y"),
        ({}, "inputs: expected x; found none"),
    ],
)
def test_inputs_that_are_not_the_engines_are_refused(opened: Opened, feeds: Any, says: str) -> None:
    session, _ = opened(doubled(WIDE))
    with pytest.raises(RungError, match=says):
        session(feeds)


def resized() -> Net:
    """An engine that repeats a row as often as a number in host memory says, and gives the size there too."""
    ios = (
        Io("x", "float32", (3,), is_input=True),
        Io("n", "int64", (1,), is_input=True, host=True),
        Io("y", "float32", (-1, 3), is_input=False),
        Io("size", "int64", (2,), is_input=False, host=True),
    )
    return Net(
        Loaded(ios, ({"x": batches(3, 3, 3), "n": ((1,), (2,), (9,))},)),
        infer=lambda given: {"y": (given["n"][0], 3), "size": (2,)},
        compute=lambda feeds: {"y": np.tile(feeds["x"], (feeds["n"][0], 1)), "size": np.array([feeds["n"][0], 3])},
    )


def test_numbers_that_decide_about_sizes_stay_in_host_memory(opened: Opened) -> None:
    session, driver = opened(resized())
    row = np.array([1, 2, 3], FLOAT)
    for times in (2, 2, 9, 1):
        found = session({"x": row, "n": np.array([times])})
        np.testing.assert_array_equal(found["y"], [row] * times)
        np.testing.assert_array_equal(found["size"], [times, 3])
    assert {call[1] for call in driver.names("upload", "download")} == {"x", "y"}
    assert len(driver.names("shapes")) == 3
    assert {call[1] for call in driver.names("set_shape")} == {"x"}


def test_numbers_in_host_memory_are_held_to_the_profile_and_to_their_own_shape(opened: Opened) -> None:
    session, _ = opened(resized())
    with pytest.raises(RungError, match="takes n from 1 to 9, found 10"):
        session({"x": np.zeros(3, FLOAT), "n": np.array([10])})
    with pytest.raises(RungError, match="input 'n': expected numbers of shape 1, found 2"):
        session({"x": np.zeros(3, FLOAT), "n": np.array([1, 2])})


def picked() -> Net:
    """An engine that gives the positive ones of its numbers."""
    ios = (Io("x", "float32", (-1,), is_input=True), Io("y", "float32", (-1,), is_input=False))
    return Net(
        Loaded(ios, ({"x": batches(1, 4, 8)},)),
        infer=lambda _: {"y": (-1,)},
        compute=lambda feeds: {"y": feeds["x"][feeds["x"] > 0]},
    )


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_an_output_whose_size_the_data_decides_has_the_size_it_got(opened: Opened, cuda_graph: bool) -> None:  # noqa: FBT001
    session, driver = opened(picked(), cuda_graph=cuda_graph)
    for values in ([1, -1, 2], [-1, 3, -1], [-1, -2, -3], [1, 2, 3, 4, 5, 6]):
        found = session({"x": np.array(values, FLOAT)})["y"]
        np.testing.assert_array_equal(found, [value for value in values if value > 0])
    assert not driver.names("capture")


def test_an_output_stays_the_runtimes_where_another_shape_settles_it(opened: Opened) -> None:
    net = picked()
    known = Net(net.loaded, lambda given: {"y": given["x"] if given["x"] == (1,) else (-1,)}, net.compute)
    session, driver = opened(known)
    for values in ([1], [1, -1, 2], [5]):
        found = session({"x": np.array(values, FLOAT)})["y"]
        np.testing.assert_array_equal(found, [value for value in values if value > 0])
    assert len(driver.names("written")) == 3


def test_a_graph_is_recorded_on_the_second_call_at_a_shape_and_launched_from_then_on(opened: Opened) -> None:
    session, driver = opened(doubled(WIDE), cuda_graph=True)
    ways = []
    for call, batch in enumerate((4, 4, 4, 5, 5, 4)):
        driver.calls.clear()
        x = ramp(batch) + call
        np.testing.assert_array_equal(session({"x": x})["y"], 2 * x + 1)
        ways.append([name for name, *_ in driver.names("execute", "capture", "start", "launch")])
    first, second, later = ["start", "execute"], ["capture", "start", "launch"], ["start", "launch"]
    assert ways == [first, second, later, first, second, first]


def test_each_profile_keeps_its_graph(opened: Opened) -> None:
    session, driver = opened(doubled(batches(1, 1, 1, 3), batches(2, 8, 32, 3)), cuda_graph=True)
    for batch in (1, 8, 1, 8, 1, 8):
        np.testing.assert_array_equal(session({"x": ramp(batch)})["y"], 2 * ramp(batch) + 1)
    assert driver.names("capture") == [("capture", "0"), ("capture", "1")]
    assert driver.names("launch") == [("launch", "0"), ("launch", "1")] * 2


def test_memory_is_what_the_gpu_has_less_of(opened: Opened) -> None:
    session, _ = opened(doubled(WIDE))
    assert session.memory_bytes == ENGINE_BYTES + 2 * 32 * 3 * 4


def test_closing_frees_all_once_and_a_later_call_fails(opened: Opened) -> None:
    session, driver = opened(doubled(WIDE))
    session.close()
    session.close()
    assert not driver.memory
    assert not driver.contexts
    assert driver.closed
    with pytest.raises(RungError, match="closed"):
        session({"x": ramp(1)})
    with pytest.raises(RungError, match="closed"):
        _ = session.memory_bytes


def test_a_call_that_fails_leaves_the_engine_usable(opened: Opened) -> None:
    session, driver = opened(doubled(WIDE))
    for step in ("shapes", "execute"):
        driver.fails[step] = RungError("no")
        with pytest.raises(RungError, match="no"):
            session({"x": ramp(3)})
        driver.fails.clear()
        driver.stream.clear()
        np.testing.assert_array_equal(session({"x": ramp(3)})["y"], 2 * ramp(3) + 1)
        session({"x": ramp(4)})


def refusal(tmp_path: Path, kind: type[Exception], content: bytes = b"an engine", **changed: Any) -> str:
    """Open an engine that is to be refused; the driver must have been closed."""
    path = tmp_path / "model.a10g.engine"
    path.write_bytes(content)
    net = doubled(WIDE)
    driver = FakeDriver(net, PRESENT)
    with pytest.raises(kind) as refused:
        open_engine(path, record(net, b"an engine", **changed), driver)
    assert driver.closed
    assert not driver.names("context")
    return str(refused.value)


def test_an_engine_for_another_gpu_is_not_loaded(tmp_path: Path) -> None:
    said = refusal(tmp_path, MachineError, capabilities=("7.5", "8.9"), devices=("t4", "l4"))
    assert "7.5, 8.9 (t4, l4)" in said
    assert "8.6 (NVIDIA A10G)" in said


@pytest.mark.parametrize(
    ("changed", "loads"),
    [
        ({"version": "11.4.0.99"}, True),
        ({"version": "11.3.0.106"}, False),
        ({"version": "10.4.0.106"}, False),
        ({"version": "11.4.1.106"}, False),
        ({"version": "11.3.0.1", "flags": ("VERSION_COMPATIBLE",)}, True),
        ({"version": "11.10.0.1", "flags": ("VERSION_COMPATIBLE",)}, False),
        ({"version": "11.4.0.99", "provider": "tensorrt-rtx"}, False),
        ({"version": "11.4.0.106", "provider": "tensorrt-rtx"}, True),
        ({"version": "11.3.0.106", "provider": "tensorrt-rtx", "flags": ("VERSION_COMPATIBLE",)}, False),
    ],
)
def test_an_engine_of_another_version_is_not_loaded(
    opened: Opened, tmp_path: Path, changed: Mapping[str, Any], *, loads: bool
) -> None:
    if loads:
        session, _ = opened(doubled(WIDE), **changed)
        np.testing.assert_array_equal(session({"x": ramp(1)})["y"], 2 * ramp(1) + 1)
    else:
        said = refusal(tmp_path, MachineError, **changed)
        assert changed["version"] in said
        assert PRESENT.version in said


def test_another_file_than_the_record_describes_is_not_loaded(tmp_path: Path) -> None:
    said = refusal(tmp_path, InputError, content=b"another")
    assert hashlib.sha256(b"another").hexdigest() in said
    assert hashlib.sha256(b"an engine").hexdigest() in said


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    driver = FakeDriver(doubled(WIDE), PRESENT)
    with pytest.raises(InputError, match="No such file"):
        open_engine(tmp_path / "none.engine", record(driver.net, b""), driver)
    assert driver.closed


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": (Bound(name="z", dtype="float32", shape=(-1, 3)),)},
        {"outputs": (Bound(name="y", dtype="float16", shape=(-1, 3)),)},
        {"profiles": ({"x": batches(1, 8, 31, 3)},)},
        {"profiles": ({"x": WIDE}, {"x": WIDE})},
    ],
)
def test_an_engine_that_its_record_does_not_describe_is_refused(tmp_path: Path, changed: Mapping[str, Any]) -> None:
    assert "engine.json" in refusal(tmp_path, InputError, **changed)


def test_a_record_without_profiles_fits_an_engine_without_open_dimensions(opened: Opened) -> None:
    session, _ = opened(doubled(batches(2, 2, 2, 3)), profiles=())
    np.testing.assert_array_equal(session({"x": ramp(2)})["y"], 2 * ramp(2) + 1)


def test_too_little_memory_on_opening_is_the_machines_fault_and_frees_what_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "model.a10g.engine"
    path.write_bytes(b"")
    net = doubled(batches(1, 1, 1 << 20, 3))
    driver = FakeDriver(net, PRESENT)
    with pytest.raises(MachineError, match=r"load model\.a10g\.engine: out of memory"):
        open_engine(path, record(net, b""), driver)
    assert driver.closed
    assert not driver.memory
