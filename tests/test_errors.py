"""The error tree: who acts, and with which exit code."""

from __future__ import annotations

import errno
import re

from compressor import errors


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn = dict(re.findall(r"^  \+ (\w+) .*?(?:exit (\d)|recorded)", errors.__doc__ or "", re.MULTILINE))
    classes = {cls.__name__: cls for cls in errors.CompressorError.__subclasses__()}
    assert set(drawn) == set(classes)
    assert {name: str(cls.exit_code) for name, cls in classes.items() if drawn[name]} == {
        name: code for name, code in drawn.items() if code
    }


def test_no_error_is_a_kind_of_another_but_what_says_nothing_of_the_next_time() -> None:
    kinds = [kind for cls in errors.CompressorError.__subclasses__() for kind in cls.__subclasses__()]
    assert kinds == [errors.CutOffError]
    assert not errors.CutOffError.__subclasses__()


def test_a_copy_that_finds_no_room_names_where_it_goes_and_not_what_is_copied() -> None:
    told = errors.refused(OSError(errno.ENOSPC, "No space left on device", "model.onnx", None, "out/model.onnx"))
    assert str(told).startswith("out/model.onnx: no space left")
