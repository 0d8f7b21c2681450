from __future__ import annotations

from typing import Any

import pytest

from compressor.errors import RungError
from compressor.stages import Prune


def test_pruning_is_refused_with_what_to_do(make: Any, apply: Any) -> None:
    model = make("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }", {})
    with pytest.raises(RungError, match="not part of this version; remove the rung"):
        apply(Prune(ratio="20%"), model)


def test_pruning_asks_for_evaluation_data() -> None:
    assert Prune.needs_evaluation
