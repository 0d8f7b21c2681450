import sys
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError, MachineError
from compressor.score import metric
from compressor.score.truth import Truth

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], np.float32)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    source = """
limit = 3
def share(outputs, labels): return (outputs["y"].argmax(1) == labels).mean()
def each(outputs, labels): return outputs["y"][:, 0]
def odd(outputs, labels): return [1, 2]
def broken(outputs, labels): return outputs["z"]
def wordy(outputs, labels): raise ValueError("two\\nlines")
def leaves(outputs, labels): raise SystemExit(3)
"""
    (tmp_path / "own_metric.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_metric"


def test_a_function_gives_one_number_or_one_a_sample(module: str) -> None:
    assert metric(f"{module}:share").of({"y": SCORES}, Truth(np.array([1, 0, 2]))) == pytest.approx(2 / 3)
    np.testing.assert_array_equal(metric(f"{module}:each").of({"y": SCORES}, Truth()), SCORES[:, 0].astype(np.float64))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("odd", r"gave shape \(2,\), expected one number or 3"),
        ("broken", "KeyError: 'z'"),
        ("wordy", "ValueError: two lines$"),
        ("leaves", "SystemExit: 3$"),
    ],
)
def test_a_function_that_fails_is_named(module: str, function: str, message: str) -> None:
    with pytest.raises(InputError, match=f"own_metric:{function} .*{message}"):
        metric(f"{module}:{function}").of({"y": SCORES}, Truth())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("top2", "expected one of top1, top5, f1, auc, agreement, cosine, sqnr, mae, spearman, cer, wer, map or"),
        ("top1:", "expected one of"),
        ("no_such_package.x:f", "cannot import"),
        ("own_metric:absent", "cannot import"),
        ("own_metric:limit", "expected a function"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_name_that_leads_nowhere_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric(name)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import sys\nsys.exit('done')", "SystemExit: done"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError: "),
        ("raise RuntimeError('no model')", "RuntimeError: no model"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_module_that_fails_on_import_is_refused_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, found: str
) -> None:
    (tmp_path / "failing_metric.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=rf"cannot import 'failing_metric:f' \({found}.*looked for beside the recipe"):
        metric("failing_metric:f")


@pytest.mark.parametrize(("name", "package"), [("cer", "jiwer"), ("wer", "jiwer"), ("map", "pycocotools")])
def test_a_metric_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MachineError, match=rf"{package}.*pip install 'compressor\[metrics\]'"):
        metric(name)
