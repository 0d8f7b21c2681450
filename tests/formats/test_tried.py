from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from found import INT8, TRIED

from compressor.formats import tried


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"scheme": "static", "backend": "onnxruntime", "operators": "core"}, "static, core operators"),
        ({"scheme": "static", "backend": "onnxruntime", "operators": "all"}, "static, all operators"),
        ({"scheme": "static", "backend": "nncf", "operators": "all"}, "static, by nncf"),
        ({"scheme": "dynamic", "operators": "all", "reduce_range": True}, "dynamic, 7-bit weights"),
        ({"scheme": "weights", "reduce_range": False, "unsigned": []}, "weights only"),
        ({"scheme": "static", "operators": "core", "activations": "s8"}, "static, core operators, signed"),
        (
            {"scheme": "static", "operators": "all", "activations": "u8", "unsigned": ["a", "b"]},
            "static, all operators, unsigned weights in 2 layers",
        ),
        ({"scheme": "float"}, "float"),
        ({"ratio": 0.2}, "ratio 0.2"),
        ({}, "as it is"),
    ],
)
def test_a_way_is_told_by_the_settings_that_tell_it_from_others(settings: dict[str, Any], told: str) -> None:
    assert tried.way(settings) == told


def test_one_line_says_how_all_came_out() -> None:
    (stage,) = INT8.stages
    outcomes = "dynamic 0.90x; static, by nncf refused"
    assert tried.sentence(stage) == f"quantize: static, core operators 1.93x taken; {outcomes}"
    none = (replace(TRIED[0], taken=False), *TRIED[1:])
    assert (
        tried.sentence(replace(stage, tried=none)) == f"quantize: static, core operators 1.93x; {outcomes}; none taken"
    )
    assert tried.sentence(replace(stage, tried=())) == ""


def test_what_could_not_be_timed_has_no_number() -> None:
    untimed = replace(INT8.stages[0], tried=(replace(TRIED[0], ratio=None),))
    assert tried.sentence(untimed) == "quantize: static, core operators taken"
