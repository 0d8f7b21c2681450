"""What comes from a model, a recipe, a report or a file of samples is data: it names no code, no place, no markup."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import found
import numpy as np
import onnx
import pytest
import yaml
from markdown_it import MarkdownIt

import compressor
from compressor import cli, formats, graph, recipe, registry, samples, workspace
from compressor.console import out
from compressor.errors import CompressorError, InputError, printable
from compressor.formats.snippet import snippet
from compressor.records import Artifact, File, Report, Tensor
from compressor.registry.place import public

SOURCES = sorted(Path(compressor.__file__).parent.rglob("*.py"))
HOSTILE = "|`a`\n<script>alert(1)</script> [x](javascript:y) ![z](http://e) \x1b[31m \u202egnp [red] \r\x07 **b** "
HOSTILE += "n" * 300
PARSER = MarkdownIt("commonmark").enable("table")
PASSWORD = "s3cret/p@ss"  # noqa: S105 - of nobody


Command = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Give a function that runs a command line in this process and gives its exit code."""
    terminate = signal.getsignal(signal.SIGTERM)

    def call(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["compress", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return int(stopped.value.code or 0)

    yield call
    signal.signal(signal.SIGTERM, terminate)


def _calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path, node


def test_nothing_is_read_that_could_hold_code() -> None:
    checked = 0
    for path, call in _calls():
        name, keywords = ast.unparse(call.func), {k.arg: ast.unparse(k.value) for k in call.keywords}
        where = f"{path}:{call.lineno}"
        assert not name.startswith(("pickle.", "cPickle.", "dill.", "joblib.", "marshal.", "shelve.")), where
        assert name not in {"eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}, where
        assert not name.endswith((".extractall", ".unpack_archive")), where
        assert "shell" not in keywords, where
        if name == "np.load":
            assert keywords.get("allow_pickle") == "False", where
        if name == "torch.load":
            assert keywords.get("weights_only") == "True", where
        checked += 1
    assert checked > 1000


def test_the_only_loader_of_yaml_is_a_safe_one() -> None:
    sources = "\n".join(path.read_text() for path in Path(compressor.__file__).parent.rglob("*.py"))
    loaders = set(re.findall(r"yaml\.(\w*[Ll]oad\w*|\w*Loader)\b", sources))
    assert loaders == {"SafeLoader"}
    with pytest.raises(InputError, match="not readable as YAML"):
        recipe.parse("seed: !!python/object/apply:os.getcwd []", "r")


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb\r\nc", "a\u202eb", "\x07\x9b31m", "a\u2028b\x00", "\ud800"])
def test_a_terminal_finds_nothing_but_characters_to_show(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode()
    assert printable(shown) == shown


def test_what_is_readable_stays_as_it_is() -> None:
    for text in ("/models/ça va/模型.onnx: 3 µs → 2 µs", "शक्ति", "a\u200db"):
        assert printable(text) == text


def test_a_long_sentence_keeps_its_start_and_its_end() -> None:
    told = str(InputError(f"model.onnx: {'n' * 10_000_000}; export it again"))
    assert len(told) <= 600
    assert told.startswith("model.onnx: n")
    assert told.endswith("export it again")
    assert "\n" not in str(InputError("a\nb"))


def _poisoned(tree: Any, keep: frozenset[str]) -> Any:
    """Put hostile text wherever a report holds text that its reader does not settle."""
    if isinstance(tree, dict):
        return {name: value if name in keep else _poisoned(value, keep) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_poisoned(value, keep) for value in tree]
    return HOSTILE if isinstance(tree, str) else tree


@pytest.fixture
def hostile(tmp_path: Path) -> Report:
    tree = json.loads(formats.render(found.REPORT, "json"))
    keep = frozenset({"verdict", "started", "options", "chosen", "rung", "engine", "path", "unit", "of"})
    path = tmp_path / "report.json"
    path.write_text(json.dumps(_poisoned(tree, keep)))
    return formats.read(path)


def test_a_report_shows_names_and_reads_none_as_markup(hostile: Report) -> None:
    text = formats.render(hostile, "md")
    kinds = {token.type for token in _tokens(text)}
    assert {"table_open", "fence", "heading_open"} <= kinds
    assert not {"image", "link_open", "html_inline", "html_block"} - {"html_block"} & kinds
    blocks = [token.content for token in _tokens(text) if token.type == "html_block"]
    assert all("script" not in block for block in blocks)
    outside = "".join(token.content for token in _tokens(text) if token.type == "text")
    assert "<script>alert(1)</script>" in outside
    assert all(line.isprintable() for line in text.splitlines())
    rows = [token for token in _tokens(text) if token.type == "tr_open"]
    honest = [token for token in _tokens(formats.render(found.REPORT, "md")) if token.type == "tr_open"]
    assert len(rows) == len(honest)


def _tokens(text: str) -> Iterator[Any]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def test_the_console_shows_names_and_obeys_none(capsys: pytest.CaptureFixture[str]) -> None:
    out.say(HOSTILE)
    out.warn([HOSTILE])
    out.table(("a", "b"), [(HOSTILE, "[bold]x[/bold]")])
    told, shown = capsys.readouterr().err, capsys.readouterr().out
    assert "\x1b" not in told + shown
    assert "\u202e" not in told + shown
    assert "[red]" in told


@pytest.mark.parametrize("place", ["../../x", "/etc/passwd", "a/../../x"])
@pytest.mark.parametrize("words", [("bench",), ("compare", "net.onnx"), ("publish",), ("report",)])
def test_no_artifact_of_a_report_lies_outside(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], place: str
) -> None:
    tree = json.loads(formats.render(found.REPORT, "json"))
    for trial in (tree["baseline"], *tree["trials"]):
        for artifact in trial["artifacts"]:
            artifact["files"][0]["path"] = place
    path = tmp_path / "report.json"
    path.write_text(json.dumps(tree))
    assert command(words[0], path, *words[1:]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "lies outside the run's folder" in told.err


@pytest.mark.parametrize(
    "options",
    [
        {"x = __import__('os').system('true') #": "1"},
        {"intra_op_num_threads": "1); import os"},
        {"optimized_model_filepath": "/tmp/x"},  # noqa: S108 - which is never written
    ],
)
def test_the_options_of_a_report_are_no_code(tmp_path: Path, options: dict[str, str]) -> None:
    tree = json.loads(formats.render(found.REPORT, "json"))
    tree["baseline"]["artifacts"][0]["options"] = options
    (tmp_path / "report.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match="is no option of a session"):
        formats.read(tmp_path / "report.json")


@pytest.mark.parametrize("name", ['a".onnx', "a'b.onnx", "a\\n.onnx", "a\nimport os.onnx", '"""', "a{b}.onnx"])
def test_a_script_holds_names_as_text(name: str) -> None:
    options = {"session.x'y": 'a"b\n', "intra_op_num_threads": "1", "custom_ops": "lib\n'.so"}
    code = snippet(Artifact("onnxruntime", "cpu", (File(f"int8/{name}", "", 0),), 0.0, options))
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    texts = {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
    assert {name, "session.x'y", 'a"b\n'} <= texts
    assert {ast.unparse(call.func).split(".")[-1] for call in calls} <= {
        *("setdefault", "SessionOptions", "add_session_config_entry", "InferenceSession", "Path", "with_name"),
        *("get_inputs", "print", "register_custom_ops_library", "str"),
    }


@pytest.mark.parametrize(
    "name", ["..", "/etc", "-rf", "a/../b", "n" * 5000, "é" * 5000, "con", "", ".", "\ud800", "a\0b", "\x1b[0m", "._-x"]
)
def test_a_name_becomes_a_file_in_its_folder(tmp_path: Path, name: str) -> None:
    made = workspace.file_name(name)
    path = tmp_path / made
    path.write_bytes(b"")
    assert path.resolve().parent == tmp_path.resolve()
    assert made[0] not in "-._"


URIS = (
    f"http://user:{PASSWORD}@127.0.0.1:9",
    f"postgresql+psycopg2://user:{PASSWORD}@127.0.0.1:9/db",
    "http://127.0.0.1:9/?token=s3cret",
    "postgresql://127.0.0.1:9/db?user=u&password=s3cret",
    f"user:{PASSWORD}@127.0.0.1",
    f"file://user:{PASSWORD}@host/x",
    f"ftp://user:{PASSWORD}@host",
    f"http://user:{PASSWORD}@host:port",
)


@pytest.mark.parametrize("uri", URIS)
def test_the_password_of_a_registry_is_in_no_message(uri: str) -> None:
    with pytest.raises(CompressorError) as caught:
        registry.check(uri)
    assert not any(part in str(caught.value) for part in ("s3cret", "p@ss"))


def test_a_registry_that_is_not_there_is_told_without_its_password(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tree = json.loads(formats.render(found.REPORT, "json"))
    tree["recipe"] = {"registry": {"uri": URIS[0]}}
    (tmp_path / "report.json").write_text(json.dumps(tree))
    for name in ("report.md", "recipe.yaml"):
        (tmp_path / name).write_text("x")
    assert command("publish", tmp_path / "report.json") == 6
    told = "".join(capsys.readouterr())
    assert "the run was not recorded" in told
    assert "Traceback" not in told
    assert not any(part in told for part in ("s3cret", "p@ss"))


@pytest.mark.parametrize("way", ["flag", "environment", "recipe"])
def test_whichever_way_it_comes_a_password_stays_hidden(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    plain = "http://user:s3cret@127.0.0.1:9"
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "net.onnx")
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({"registry": {"uri": plain if way == "recipe" else None}}))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", plain)
    flags = ("--registry", plain) if way == "flag" else ()
    words = ("run", tmp_path / "net.onnx", "--sla", "50ms", "--dry-run", "--recipe", tmp_path / "r.yaml", *flags)
    assert command(*words) == 5
    told = "".join(capsys.readouterr())
    assert "expected an MLflow server" in told
    assert "s3cret" not in told


NET = """<ir_version: 8, opset_import: ["" : 17]> net (float[batch,6] x) => (float[batch,6] y) { y = Relu (x) }"""


def test_a_refusal_that_quotes_a_password_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-of-env")
    quoted = "login http://u:s3cret@host/x?key=q failed with t0ken-of-env"
    assert public(quoted) == "login http://host/x failed with ***"
    uri = "postgresql://u:p%40ss-word@h/db?password=zzz9"
    assert public("bad p@ss-word, p%40ss-word, zzz9", uri) == "bad ***, ***, ***"


def test_places_without_secrets_stay_whole() -> None:
    for uri in ("sqlite:////home/me@corp/mlflow.db?timeout=5", "http://host:5000/path", "databricks://profile"):
        assert public(uri) == uri


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def _claiming(path: Path, size_bytes: int) -> Path:
    """Let the first member say that it holds so many bytes."""
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = data.index(mark) + at
        data[start : start + 4] = size_bytes.to_bytes(4, "little")
    path.write_bytes(data)
    return path


IMAGE = Tensor("x", "float32", (None, 3, 8, 8))
VECTOR = Tensor("x", "float32", (None, 6))


@pytest.mark.parametrize("size_bytes", [2**31 + 1, 2**32 - 2])
def test_an_image_that_would_fill_the_memory_is_refused_unread(tmp_path: Path, size_bytes: int) -> None:
    path = _claiming(_zip(tmp_path / "images.zip", {"a.png": bytes(1000)}), size_bytes)
    with pytest.raises(InputError, match="expected at most"):
        samples.read(path, (IMAGE,), {"x": (1, 3, 8, 8)})


def test_a_bomb_of_zeros_is_no_image(tmp_path: Path) -> None:
    path = _zip(tmp_path / "images.zip", {"a.png": bytes(50_000_000)})
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="damaged or unknown"):
        samples.read(path, (IMAGE,), {"x": (1, 3, 8, 8)})


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path) -> None:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(stream, "PNG")
    path = _zip(tmp_path / "images.zip", {"a.png": stream.getvalue()})
    with pytest.raises(InputError, match="damaged or unknown"):
        samples.read(path, (IMAGE,), {"x": (1, 3, 8, 8)})


@pytest.mark.parametrize("shape", ["(4611686018427387904, 6)", "(2, 4611686018427387904)", "(1099511627776,)"])
def test_an_array_that_only_claims_to_be_large_takes_no_memory(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(96)
    with pytest.raises(InputError):
        samples.read(_zip(tmp_path / "s.npz", {"x.npy": data}), (VECTOR,), {"x": (1, 6)})


@pytest.mark.parametrize("name", ["../../x.npy", "/etc/x.npy", "a/../../x.npy"])
def test_nothing_of_an_archive_is_ever_written(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(24, dtype=np.float32).reshape(4, 6))
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    read = samples.read(_zip(home / "s.npz", {name: stream.getvalue()}), (VECTOR,), {"x": (1, 6)})
    assert len(list(read)) == 4
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["s.npz"]


def _external(folder: Path, location: str) -> Path:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> net (float[n,6] x) => (float[n,2] y) { y = MatMul (x, w) }"""
    )
    tensor = onnx.numpy_helper.from_array(np.ones((6, 2), np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    proto.graph.initializer.append(tensor)
    onnx.save(proto, folder / "net.onnx")
    return folder / "net.onnx"


def _symbolic(file: Path, outside: Path) -> None:
    file.symlink_to(outside)


def _hard(file: Path, outside: Path) -> None:
    file.hardlink_to(outside)


def _loop(file: Path, _: Path) -> None:
    file.symlink_to(file)


def _pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


@pytest.mark.parametrize("made", [_symbolic, _hard, _loop, _pipe])
def test_external_data_are_a_file_of_the_model_s_folder(tmp_path: Path, made: Callable[[Path, Path], None]) -> None:
    (tmp_path / "outside").write_bytes(bytes(48))
    (tmp_path / "home").mkdir()
    made(tmp_path / "home" / "w.bin", tmp_path / "outside")
    with pytest.raises(InputError, match=r"external data|outside the model's folder"):
        graph.open_model(_external(tmp_path / "home", "w.bin"))


@pytest.mark.parametrize("location", ["../outside", "/etc/passwd", "link/outside", "a\0b", "", ".", "x" * 5000])
def test_no_location_leads_out_of_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "outside").write_bytes(bytes(48))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to("..", target_is_directory=True)
    with pytest.raises(CompressorError):
        graph.open_model(_external(tmp_path / "home", location))


def test_names_that_are_odd_survive_yaml() -> None:
    odd = {"a: b": (1, 2), "- x": (1,), "#c": (3,), "\u202ey\x1b": (4,), "é\nz": (5,), "!!python/x": (6,), "": (7,)}
    asked = recipe.default().model_copy(update={"shapes": odd})
    assert recipe.parse(recipe.write(asked), "r").shapes == odd


@pytest.mark.parametrize("size", [1, 300])
def test_what_a_model_tells_of_itself_does_not_grow_the_report(tmp_path: Path, size: int) -> None:
    proto = onnx.parser.parse_model(NET)
    proto.doc_string = proto.graph.doc_string = proto.graph.node[0].doc_string = "d" * 1000 * size
    proto.metadata_props.add(key="a\nb|c", value="v" * 1000 * size)
    onnx.save(proto, tmp_path / "net.onnx")
    told = repr(graph.open_model(tmp_path / "net.onnx")) + repr(graph.summary(tmp_path / "net.onnx"))
    assert len(told) < 2000


def test_a_recipe_may_not_be_endless(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("#" * 2**21)
    for path in (Path("/dev/zero"), tmp_path / "large.yaml"):
        with pytest.raises(InputError, match="expected a recipe of at most"):
            recipe.read(path)


def test_aliases_may_not_stand_for_more_than_anybody_writes() -> None:
    lines = ["x0: &x0 [y, y]", *(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 12))]
    with pytest.raises(InputError, match="its aliases stand for"):
        recipe.parse("\n".join([*lines, "shapes: {a: *x11}"]), "r")
    with pytest.raises(InputError, match=r"r:1: .* holds itself"):
        recipe.parse("rungs: &a [*a]", "r")
    assert recipe.parse("shapes: {x: &s 1x2, y: *s}", "r").shapes == {"x": (1, 2), "y": (1, 2)}
