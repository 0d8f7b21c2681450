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

K, A, B, C = (letter * 32 for letter in "0abc")
VALUE = {"sqnr_db": 41.5, "names": ["a", "ü"], "worst": float("inf")}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", "scope")


def put(store: Store, key: str = K, content: bytes = b"model", data: bytes = b"weights") -> Path:
    made = store.folder.parent / f"making-{key}"
    made.mkdir()
    (made / "model.onnx").write_bytes(content)
    (made / "model.onnx.data").write_bytes(data)
    assert store.put(key, made, "int8: quantize", VALUE)
    return store.folder / key


def test_what_was_put_is_taken_with_its_value(store: Store) -> None:
    before = datetime.now(UTC)
    folder = put(store)
    entry = store.take(K)
    assert entry is not None
    assert (entry.folder, entry.what, entry.value) == (folder, "int8: quantize", VALUE)
    assert (folder / "model.onnx").read_bytes() == b"model"
    assert entry.files["model.onnx"] == hashlib.sha256(b"model").hexdigest()
    assert entry.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert before <= entry.made <= datetime.now(UTC)
    assert not (store.folder.parent / f"making-{K}").exists()


def test_what_was_never_put_is_not_there(store: Store) -> None:
    assert store.take(K) is None
    assert not store.holds(K)
    assert store.entries() == ()


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "entry.json"])
def test_a_flipped_byte_anywhere_makes_an_entry_as_if_it_had_never_been(store: Store, name: str) -> None:
    size = (put(store) / name).stat().st_size
    for place in range(0, size, max(1, size // 40)):
        store.drop(K)
        file = put(store) / name
        damaged = bytearray(file.read_bytes())
        damaged[place] ^= 1
        file.write_bytes(damaged)
        assert store.take(K) is None, place
        assert not store.holds(K)
        assert not list(store.folder.glob(".gone-*"))


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "entry.json"])
def test_a_missing_or_shorter_file_does_too(store: Store, name: str) -> None:
    (put(store) / name).unlink()
    assert store.take(K) is None
    file = put(store) / name
    os.truncate(file, file.stat().st_size - 1)
    assert store.take(K) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"entry": {}}', "[" * 10_000, '{"sha256": 1, "entry": 2}', "\0"])
def test_a_manifest_that_is_none_is_no_entry(store: Store, text: str) -> None:
    (put(store) / "entry.json").write_text(text)
    assert store.take(K) is None


def test_a_file_that_a_manifest_does_not_name_changes_nothing(store: Store) -> None:
    (put(store) / "more").write_text("x")
    assert store.take(K) is not None


def test_the_first_of_two_that_make_the_same_stays(store: Store) -> None:
    first = put(store, K, b"first")
    (made := store.folder.parent / "slower").mkdir()
    (made / "model.onnx").write_bytes(b"second")
    assert not store.put(K, made, "int8: quantize", VALUE), "what is there is another's"
    assert (first / "model.onnx").read_bytes() == b"first"


def test_keys_tell_apart_what_differs_and_nothing_else() -> None:
    store, other = Store(Path("a"), "one"), Store(Path("a"), "two")
    keys = [store.key("x", 1), store.key("x", "1"), store.key("x1"), store.key("x", 1, None), other.key("x", 1)]
    assert len({*keys}) == len(keys)
    assert store.key("x", [("b", 2)]) == Store(Path("elsewhere"), "one").key("x", [("b", 2)])
    assert all(len(key) == len(digest()) == 32 for key in keys)


def test_entries_come_with_the_one_that_was_used_last_first(store: Store) -> None:
    for age_s, key in enumerate((A, B, C)):
        when = time.time() - 100 * (age_s + 1)
        os.utime(put(store, key) / "entry.json", (when, when))
    assert [entry.key for entry in store.entries()] == [A, B, C]
    assert store.take(C) is not None
    assert [entry.key for entry in store.entries()] == [C, A, B]


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
        store.put(f"{n:032x}", made, "what", {"n": n})
"""


def test_a_process_that_is_killed_leaves_whole_entries_only(store: Store) -> None:
    code = textwrap.dedent(PUT)
    with subprocess.Popen([sys.executable, "-c", code, str(store.folder)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        while len(list(store.folder.glob("0" * 8 + "*"))) < 5:
            time.sleep(0.01)
        writer.kill()
        writer.wait()
    for folder in store.folder.glob("0" * 8 + "*"):
        n = int(folder.name, 16)
        manifest = json.loads((folder / "entry.json").read_text())
        assert manifest["entry"]["value"] == {"n": n}
        assert (folder / "model.onnx").read_bytes() == bytes([n % 256]) * 200_000
        assert store.take(folder.name) is not None


def test_locks_of_entries_that_are_gone_go_unless_they_are_held(store: Store) -> None:
    for key in (A, B, C):
        _drive(store.alone(key, 1))[1].release()  # type: ignore[attr-defined]
    put(store, A)
    held = _drive(store.alone(C, 1))[1]
    store.tidy()
    assert sorted(path.name for path in (store.folder / "locks").iterdir()) == [A, C]
    held.release()  # type: ignore[attr-defined]
    store.tidy()
    assert [path.name for path in (store.folder / "locks").iterdir()] == [A]


def _rewritten(store: Store, **changes: object) -> None:
    """Change what a manifest says, with a digest that fits."""
    manifest = put(store) / "entry.json"
    body = {**json.loads(manifest.read_text())["entry"], **changes}
    manifest.write_text(json.dumps({"sha256": digest(json.dumps(body, sort_keys=True)), "entry": body}))


@pytest.mark.parametrize(
    "changes",
    [
        {"what": 5},
        {"what": None},
        {"made": "2026-01-01T00:00:00"},  # of no time zone
        {"made": 1e30},
        {"files": ["model.onnx"]},
        {"files": {"/dev/zero": "0"}},
        {"files": {"../k/model.onnx": "0"}},
        {"value": [1]},
        {"more": 1},
    ],
    ids=str,
)
def test_what_no_store_writes_is_no_entry_though_its_digest_fits(store: Store, changes: dict[str, object]) -> None:
    _rewritten(store, what="another")
    assert store.take(K) is not None
    store.drop(K)
    _rewritten(store, **changes)
    assert store.unreadable() == (K,)
    assert store.entries() == ()
    assert store.take(K) is None
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["model.onnx", "entry.json"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_plain_file_is_never_read(store: Store, name: str, kind: str) -> None:
    file = put(store) / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    assert store.entries() == ()
    assert store.take(K) is None
    assert not store.holds(K)


def test_nothing_goes_but_what_a_store_names_itself(store: Store) -> None:
    put(store)
    for name in ("notes", ".gone-precious", "locks"):
        (store.folder / name).mkdir()
    (store.folder / "locks" / "mine").touch()
    (store.folder / A).symlink_to(store.folder / "notes")
    assert store.unreadable() == (A,)
    store.drop(A)
    store.drop(K)
    store.tidy()
    left = sorted(path.relative_to(store.folder).as_posix() for path in store.folder.rglob("*"))
    assert left == [".gone-precious", "locks", "locks/mine", "notes"]


def test_what_was_taken_since_it_was_listed_stays(store: Store) -> None:
    put(store)
    os.utime(store.folder / K / "entry.json", (1, 1))
    (listed,) = store.entries()
    assert not store.drop_unused(listed, before=0.5), "a run that began before may need it"
    assert store.take(K) is not None
    assert not store.drop_unused(listed, before=None)
    (listed,) = store.entries()
    lock = _drive(store.alone(K, 1))[1]
    assert not store.drop_unused(listed, before=None), "somebody is at it"
    lock.release()  # type: ignore[attr-defined]
    assert store.drop_unused(listed, before=None)
    assert not store.holds(K)
