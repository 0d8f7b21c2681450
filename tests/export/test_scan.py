"""Programs that would run code when they are loaded: each is refused unread, and each would have run it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import exploits
import pytest
import torch
import torch_nets
from finished import finish

from compressor import isolation
from compressor.errors import InputError
from compressor.export import archived, scan, source, text
from compressor.isolation import Limits

Change = Callable[[bytes], bytes]
Exploit = Callable[[exploits.Members, Path], None]
SAMPLE, GRAPH = "sample_inputs/model.pt", "models/model.json"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exploits.program(tmp_path_factory.mktemp("options") / "options.pt2")


def test_a_program_that_holds_no_code_is_copied_but_for_what_torch_can_do_without(saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved, "r") as one:
        names = {name.partition("/")[2]: name for name in one.namelist()}
        beside = exploits.changed(
            saved, tmp_path / "net.pt2", lambda members: members.update({"extra/notes": b"a = 1"})
        )
        scan.checked_copy(beside, tmp_path / "copy.pt2")
        with zipfile.ZipFile(tmp_path / "copy.pt2") as other:
            assert [name.partition("/")[2] for name in other.namelist()] == list(names)
            differing = [name for name in names if one.read(names[name]) != other.read(f"program/{name}")]
    assert {name.rpartition(".")[2] for name in differing} == {"json"}


@pytest.mark.parametrize(("change", "what"), exploits.EXPLOITS)
def test_every_known_way_in_is_refused(options: Path, tmp_path: Path, change: Exploit, what: str) -> None:
    made = tmp_path / "made"
    bad = exploits.changed(options, tmp_path / "bad.pt2", lambda members: change(members, made))
    with pytest.raises(InputError, match=f"could run code: it holds .*{what}.*--trust"):
        archived.loaded(source(str(bad), None))
    assert not made.exists()


def test_every_known_way_in_is_one(options: Path, tmp_path: Path) -> None:
    bad = [
        exploits.changed(options, tmp_path / f"{i}.pt2", partial(one, made=tmp_path / str(i)))
        for i, (one, _) in enumerate(exploits.EXPLOITS)
    ]
    finish(isolation.call(exploits.call_all, bad, tmp_path, limits=Limits()))
    ways = {change.__name__ for i, (change, _) in enumerate(exploits.EXPLOITS) if (tmp_path / str(i)).is_dir()}
    assert ways == {change.__name__ for change, _ in exploits.EXPLOITS}


def test_a_program_with_a_dict_and_a_constant_computes_the_same_from_the_copy(options: Path, tmp_path: Path) -> None:
    scan.checked_copy(options, tmp_path / "copy.pt2")
    found = torch.export.load(tmp_path / "copy.pt2").module()(*exploits.arguments())
    wanted = torch.export.load(options).module()(*exploits.arguments())
    assert found.keys() == wanted.keys() == {"plain", "deep"}
    assert torch.equal(found["plain"], wanted["plain"])


def test_weights_are_tensors_whatever_their_first_bytes_are(saved: Path, tmp_path: Path) -> None:
    def change(members: exploits.Members) -> None:
        members["data/weights/weight_0"] = b"PK\x03\x04" + members["data/weights/weight_0"][4:]

    scan.checked_copy(exploits.changed(saved, tmp_path / "net.pt2", change), tmp_path / "copy.pt2")


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"use_pickle": True}, "a tensor that is called a pickle"),
        ({"use_pickle": None}, "a field that is not what torch writes .use_pickle"),
        ({"tensor_meta": None}, "a tensor that is called a pickle"),
        ({"path_name": "../weights/weight_0"}, "names another member"),
        ({"path_name": "weight_999"}, "names another member"),
        ({"path_name": "model_weights_config.json"}, "names another member"),
        ({"more": 1}, "a field that torch does not write .'more'"),
        ({"is_param": "yes"}, "a field that is not what torch writes .is_param 'yes'"),
        ({"is_param": {}}, "a field that is not what torch writes"),
    ],
)
def test_lists_of_tensors_name_tensors(saved: Path, tmp_path: Path, config: dict[str, Any], what: str) -> None:
    def change(members: exploits.Members) -> None:
        listed = json.loads(members[exploits.WEIGHTS])
        next(iter(listed["config"].values())).update(config)
        members[exploits.WEIGHTS] = json.dumps(listed).encode()

    bad = exploits.changed(saved, tmp_path / "bad.pt2", change)
    with pytest.raises(InputError, match=f"could run code: it holds .*{what}.*--trust"):
        scan.checked_copy(bad, tmp_path / "copy.pt2")


@pytest.mark.parametrize(
    ("member", "change", "what"),
    [
        (SAMPLE, lambda made: lambda _: torch_nets.checkpoint(made), r"a pickle that needs posix.mkdir \(data/sample"),
        (SAMPLE, lambda made: lambda _: torch_nets.plain_pickle(made), "a pickle that needs more than tensors"),
        (GRAPH, torch_nets.expression, "text that torch would run as code: expr_str"),
        (GRAPH, torch_nets.named, "text that torch would run as code: name"),
        (GRAPH, torch_nets.called, "text that torch would run as code: target 'torch.os.system'"),
    ],
)
def test_what_could_run_code_is_refused_and_names_the_way_out(
    saved: Path, tmp_path: Path, member: str, change: Callable[[Path], Change], what: str
) -> None:
    made = tmp_path / "made"
    bad = torch_nets.rewritten(saved, tmp_path / "bad.pt2", member, change(made))
    with pytest.raises(InputError, match=f"could run code: it holds {what}.*--trust"):
        scan.checked_copy(bad, tmp_path / "copy.pt2")
    assert not made.exists()


def test_torch_alone_would_have_run_it_and_guards_are_left_out(saved: Path, tmp_path: Path) -> None:
    made = {name: tmp_path / name for name in ("pickle", "expression", "guard", "copied")}
    bad = [
        torch_nets.rewritten(saved, tmp_path / f"{name}.pt2", member, change)
        for name, member, change in (
            ("pickle", SAMPLE, lambda _: torch_nets.checkpoint(made["pickle"])),
            ("expression", GRAPH, torch_nets.expression(made["expression"])),
            ("guard", GRAPH, torch_nets.guard(made["guard"])),
            ("copied", GRAPH, torch_nets.guard(made["copied"])),
        )
    ]
    scan.checked_copy(bad[-1], tmp_path / "clean.pt2")
    finish(isolation.call(torch_nets.call_all, [*bad[:-1], tmp_path / "clean.pt2"], limits=Limits()))
    assert {name for name, folder in made.items() if folder.is_dir()} == {"pickle", "expression", "guard"}


@pytest.mark.parametrize(
    "name",
    [
        "data/constants/custom_obj_0",
        "data/aotinductor/model/net.so",
        "data/weights/WEIGHT_0",
        "data/weights/../weights/weight_0",
        "data/weights/model.pt",
        "models/other.json",
        "version",
    ],
)
def test_members_that_are_not_known_are_refused(saved: Path, tmp_path: Path, name: str) -> None:
    bad = torch_nets.rewritten(saved, tmp_path / "bad.pt2", "nothing", bytes)
    with zipfile.ZipFile(bad, "a") as archive:
        archive.writestr(f"models/{name}", b"1234")
    with pytest.raises(InputError, match=f"could run code: it holds .*{name}"):
        scan.checked_copy(bad, tmp_path / "copy.pt2")


def test_packed_members_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/models/model.json", b" " * 10_000_000)
    with pytest.raises(InputError, match=r"no archive as torch.export.save writes it, and could be a trap"):
        scan.checked_copy(tmp_path / "bomb.pt2", tmp_path / "copy.pt2")


@pytest.mark.parametrize("data", [b"", b"version https://git-lfs", b"PK\x03\x04 cut off"])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "net.pt2").write_bytes(data)
    with pytest.raises(InputError, match=r"net.pt2: no readable .pt2"):
        scan.checked_copy(tmp_path / "net.pt2", tmp_path / "copy.pt2")
    with pytest.raises(InputError, match=r"none.pt2: no such file"):
        scan.checked_copy(tmp_path / "none.pt2", tmp_path / "copy.pt2")


@pytest.mark.parametrize(
    ("expression", "arithmetic"),
    [
        ("Symbol('s77', positive=True, integer=True)", True),
        ("Add(Mul(Integer(-1), FloorDiv(Symbol('s0'), Integer(2))), Integer(1))", True),
        ("2*s53 + 1", True),
        ("s0 >= 2", True),
        ("Symbol('__import__')", False),
        ("S('exec(1)')", False),
        ("print(1)", False),
        ("eval", False),
        ("Symbol('s0').func", False),
        ("(lambda: 1)()", False),
        ("[s0 for s0 in s1]", False),
        ("Symbol('s0'", False),
        ("Float('1.5', precision=53)", True),
        ("Add(Symbol('s0'), 'os')", False),
        ("PlotGrid(s0)", False),
        ("s0(1)", False),
    ],
)
def test_sizes_may_only_compute(expression: str, arithmetic: bool) -> None:  # noqa: FBT001
    assert text.is_arithmetic(expression) == arithmetic


@pytest.mark.parametrize(
    ("target", "operator"),
    [
        ("torch.ops.aten.relu.default", True),
        ("torch.ops.aten.__and__.Tensor", True),
        ("torch.ops.higher_order.cond", True),
        ("_operator.getitem", True),
        ("torch.sym_max", True),
        ("math.trunc", True),
        ("torch.ops.load_library", False),
        ("torch.ops.load_library.__call__", False),
        ("torch.ops.aten.relu.__class__", False),
        ("torch.ops.aten.from_file.default", False),
        ("torch.hub.load", False),
        ("_operator.call", False),
        ("_operator.attrgetter", False),
        ("#extension:x", False),
        ("builtins.eval", False),
        ("torch.ops.aten.save.default", False),
        ("torch.ops.aten.relu.default.redispatch", False),
        ("torch.ops.debugprims.load_tensor.default", False),
        ("torch.ops.higher_order.inline_asm_elementwise", False),
        ("torch.ops.quantized_decomposed.quantize_per_tensor.default", True),
    ],
)
def test_nodes_may_only_be_operators(target: str, operator: bool) -> None:  # noqa: FBT001
    assert text.is_operator(target) == operator


@pytest.mark.parametrize(
    ("name", "plain", "words"),
    [
        (True, True, "x_1"),
        (True, True, "größe"),
        (False, True, "a.b-c, d"),
        (False, False, "a\r"),
        (False, False, "a\u2028b"),
        (False, False, "f(x)"),
        (False, False, "a'"),
        (False, False, "a=1"),
    ],
)
def test_names_are_names_and_other_text_stays_on_its_line(name: bool, plain: bool, words: str) -> None:  # noqa: FBT001
    assert (text.is_name(words), text.is_plain(words)) == (name, plain)


@pytest.mark.parametrize(
    ("kind", "context", "fits"),
    [
        ("builtins.dict", '["a b", 3]', True),
        ("collections.OrderedDict", '["a"]', True),
        ("builtins.list", "null", True),
        ("builtins.dict", '["a\\u0022"]', False),
        ("builtins.dict", '{"a": 1}', False),
        ("builtins.list", "3", False),
        ("builtins.list", '{"\\u005f_enum__": 1}', False),
        ("collections.namedtuple", '"net.Point"', False),
        ("collections.defaultdict", '{"default_factory_module": "os"}', False),
        (None, "null", False),
    ],
)
def test_containers_are_those_of_python_with_plain_keys(kind: str | None, context: str, fits: bool) -> None:  # noqa: FBT001
    spec = json.dumps([1, {"type": kind, "context": context, "children_spec": []}])
    assert text.is_tree(spec) == fits


def test_keys_of_a_call_are_names() -> None:
    def spec(key: str) -> str:
        args, kwargs = (
            {"type": f"builtins.{kind}", "context": json.dumps(keys), "children_spec": []}
            for kind, keys in (("tuple", None), ("dict", [key]))
        )
        return json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [args, kwargs]}])

    assert [text.is_tree(spec(key), called=True) for key in ("mask", "a b", "a: b")] == [True, False, False]
    assert text.is_tree(spec("a b"))
