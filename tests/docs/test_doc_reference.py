"""The reference is what the code gives, and says something of every key, field, option and exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import DOCS, PAGES, ROOT, generators, prose

generators()

import generate  # noqa: E402 - found by the line above
from generators import codes, commands, recipe, report, source, words  # noqa: E402

PROSE = tuple(page for page in PAGES if DOCS / "reference" not in page.parents)


@pytest.mark.parametrize("page", generate.PAGES)
def test_it_is_what_the_code_gives(page: str) -> None:
    assert (DOCS / "reference" / page).read_text(encoding="utf-8") == generate.PAGES[page](), (
        "run `python docs/generate.py`"
    )


def test_every_key_of_a_recipe_has_a_text() -> None:
    sections = recipe.sections()
    assert {section.name for section in sections} >= {"Recipe", "Quantize", "Prune", "Latency", "Limits", "Tensorrt"}
    assert [f"{s.path}.{key}" for s in sections for key in s.node["properties"] if not recipe.meaning(s, key)] == []


def test_every_field_of_a_report_has_a_text() -> None:
    missing = [
        f"{cls.__name__}.{field}" for cls in report.classes() for field, text in report.fields(cls).items() if not text
    ]
    assert missing == []


def test_every_argument_and_option_has_a_text() -> None:
    missing = [
        f"{path} {parameter.name}"
        for path, command in commands.commands()
        for parameter in command.params
        if not commands.meaning(parameter)
    ]
    assert missing == []


def test_every_exit_code_says_what_to_do() -> None:
    assert set(codes.CODES) == codes.known()
    assert all(said and to_do for said, to_do in codes.CODES.values())


def test_no_text_is_left_of_what_is_gone() -> None:
    keys = {f"{section.name}.{key}" for section in recipe.sections() for key in section.node["properties"]}
    fields = {f"{cls.__name__}.{field}" for cls in report.classes() for field in report.fields(cls)}
    assert set(words.KEYS) - keys == set()
    assert set(words.FIELDS) - fields == set()


def test_every_command_and_exit_code_stands_in_a_page_for_people() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PROSE)
    assert [
        path for path, _ in commands.commands() if not re.search(rf"\b{path}\b", text.replace("|", " recipe "))
    ] == []
    assert [code for code in codes.CODES if not re.search(rf"\b{code}\b", text)] == []


def test_every_gate_stage_engine_and_metric_stands_in_a_page_for_people() -> None:
    text = "\n".join(map(prose, PROSE)) + "\n".join(page.read_text(encoding="utf-8") for page in PROSE)
    words_of = {section.path.rpartition(".")[2] for section in recipe.sections() if "." in section.path}
    assert [word for word in sorted(words_of) if not re.search(rf"\b{re.escape(word)}\b", text)] == []


def test_texts_are_found_where_the_code_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown.py").write_text(
        'class Shown:\n    """One thing.\n\n    `above`: from the head. `both` is said twice.\n    """\n\n'
        '    above: int\n    beside: int  # from beside\n    behind: int\n    """From behind."""\n'
        "    both: int  # too\n    none: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import shown

    fields = ("above", "beside", "behind", "both", "none")
    assert [source.told(shown.Shown, field) for field in fields] == [
        "from the head",
        "from beside",
        "From behind",
        "too; `both` is said twice",
        "",
    ]


def test_reasons_that_a_page_explains_are_those_of_the_gates() -> None:
    page = (DOCS / "reading-a-report.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "compressor" / "gates").glob("*.py")))
    for told in (
        *("is over", "do not decide", "come in bursts", "overloaded", "the process was preempted", "waited for a CPU"),
        *("drops", "lost most", "times as long as", "no stage changed the model", "come from made-up inputs"),
    ):
        assert told in page, told
        assert told in code, told
