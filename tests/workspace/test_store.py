"""The store: whole entries only, by content, shared by processes that come, go and are killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compressor.records import Progress
from compressor.workspace import Store, digest

VALUE = {"sqnr_db": 41.5, "names": ["a", "ü"], "worst": float("inf")}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", "scope")


def put(store: Store, key: str, content: bytes = b"model", data: bytes = b"weights") -> Path:
    made = store.folder.parent / f"making-{key}"
    made.mkdir()
    (made / "model.onnx").write_bytes(content)
    (made / "model.onnx.data").write_bytes(data)
    return store.put(key, made, "int8: quantize", VALUE)


def test_what_was_put_is_taken_with_its_value(store: Store) -> None:
    before = datetime.now(UTC)
    folder = put(store, "k")
    entry = store.take("k")
    assert entry is not None
    assert (entry.folder, entry.what, entry.value) == (folder, "int8: quantize", VALUE)
    assert (folder / "model.onnx").read_bytes() == b"model"
    assert entry.files["model.onnx"] == hashlib.sha256(b"model").hexdigest()
    assert entry.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert before <= entry.made <= datetime.now(UTC)
    assert not (store.folder.parent / "making-k").exists()


def test_what_was_never_put_is_not_there(store: Store) -> None:
    assert store.take("k") is None
    assert not store.holds("k")
    assert store.entries() == ()


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "entry.json"])
def test_a_flipped_byte_anywhere_makes_an_entry_as_if_it_had_never_been(store: Store, name: str) -> None:
    size = (put(store, "k") / name).stat().st_size
    for place in range(0, size, max(1, size // 40)):
        store.drop("k")
        file = put(store, "k") / name
        damaged = bytearray(file.read_bytes())
        damaged[place] ^= 1
        file.write_bytes(damaged)
        assert store.take("k") is None, place
        assert not store.holds("k")
        assert not list(store.folder.glob(".gone-*"))


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "entry.json"])
def test_a_missing_or_shorter_file_does_too(store: Store, name: str) -> None:
    (put(store, "k") / name).unlink()
    assert store.take("k") is None
    file = put(store, "k") / name
    os.truncate(file, file.stat().st_size - 1)
    assert store.take("k") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"entry": {}}', "[" * 10_000, '{"sha256": 1, "entry": 2}', "\0"])
def test_a_manifest_that_is_none_is_no_entry(store: Store, text: str) -> None:
    (put(store, "k") / "entry.json").write_text(text)
    assert store.take("k") is None


def test_a_file_that_a_manifest_does_not_name_changes_nothing(store: Store) -> None:
    (put(store, "k") / "more").write_text("x")
    assert store.take("k") is not None


def test_the_first_of_two_that_make_the_same_stays(store: Store) -> None:
    first = put(store, "k", b"first")
    assert put(store, "k", b"second") == first
    assert (first / "model.onnx").read_bytes() == b"first"


def test_keys_tell_apart_what_differs_and_nothing_else() -> None:
    store, other = Store(Path("a"), "one"), Store(Path("a"), "two")
    keys = [store.key("x", 1), store.key("x", "1"), store.key("x1"), store.key("x", 1, None), other.key("x", 1)]
    assert len({*keys}) == len(keys)
    assert store.key("x", [("b", 2)]) == Store(Path("elsewhere"), "one").key("x", [("b", 2)])
    assert all(len(key) == len(digest()) == 32 for key in keys)


def test_entries_come_with_the_one_that_was_used_last_first(store: Store) -> None:
    for age_s, key in enumerate("abc"):
        when = time.time() - 100 * (age_s + 1)
        os.utime(put(store, key) / "entry.json", (when, when))
    assert [entry.key for entry in store.entries()] == ["a", "b", "c"]
    assert store.take("c") is not None
    assert [entry.key for entry in store.entries()] == ["c", "a", "b"]


def _drive(work: object) -> tuple[list[Progress], object]:
    seen = []
    while True:
        try:
            seen.append(next(work))  # type: ignore[call-overload]
        except StopIteration as stop:
            return seen, stop.value


HOLD = """
    import sys, time
    from pathlib import Path
    from compressor.workspace import Store
    work = Store(Path(sys.argv[1])).alone("k", 60)
    try:
        next(work)
    except StopIteration as stop:
        lock = stop.value
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_waits_and_goes_on_when_the_first_is_killed(store: Store) -> None:
    code = textwrap.dedent(HOLD)
    with subprocess.Popen([sys.executable, "-c", code, str(store.folder)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        waited, lock = _drive(store.alone("k", 0.5))
        assert {progress.step for progress in waited} == {"wait for another run"}
        assert not lock.is_locked, "nobody waits for ever: after a while it is made twice"  # type: ignore[attr-defined]
        work = store.alone("k", 60)
        next(work)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        lock = _drive(work)[1]
        assert lock.is_locked  # type: ignore[attr-defined]
        lock.release()  # type: ignore[attr-defined]


PUT = """
    import sys
    from pathlib import Path
    from compressor.workspace import Store
    store, n = Store(Path(sys.argv[1])), 0
    print("begun", flush=True)
    while True:
        n += 1
        made = store.folder.parent / f"making-{n}"
        made.mkdir()
        (made / "model.onnx").write_bytes(bytes([n % 256]) * 200_000)
        store.put(f"key-{n}", made, "what", {"n": n})
"""


def test_a_process_that_is_killed_leaves_whole_entries_only(store: Store) -> None:
    code = textwrap.dedent(PUT)
    with subprocess.Popen([sys.executable, "-c", code, str(store.folder)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        while len(list(store.folder.glob("key-*"))) < 5:
            time.sleep(0.01)
        writer.kill()
        writer.wait()
    for folder in store.folder.glob("key-*"):
        n = int(folder.name.partition("-")[2])
        manifest = json.loads((folder / "entry.json").read_text())
        assert manifest["entry"]["value"] == {"n": n}
        assert (folder / "model.onnx").read_bytes() == bytes([n % 256]) * 200_000
        assert store.take(folder.name) is not None


def test_locks_of_entries_that_are_gone_go_unless_they_are_held(store: Store) -> None:
    for key in ("here", "gone", "held"):
        _drive(store.alone(key, 1))[1].release()  # type: ignore[attr-defined]
    put(store, "here")
    held = _drive(store.alone("held", 1))[1]
    store.tidy()
    assert sorted(path.name for path in (store.folder / "locks").iterdir()) == ["held", "here"]
    held.release()  # type: ignore[attr-defined]
    store.tidy()
    assert [path.name for path in (store.folder / "locks").iterdir()] == ["here"]
