"""TensorRT engines of real models, built without a GPU: size, seconds, and what their graphs score on the CPU.

    python benchmarks/engines.py --shared ../shared [--minilm paraphrase-MiniLM-L3-v2.onnx] [--only NAME ...]

FP32, FP16 and INT8 for A100, A10G, L4 and RTX 4090 in one file, FP16 for T4 in another. Scores are of the graph that
was compiled, in ONNX Runtime with exact integer arithmetic, beside the original's. A rung that cannot be built shows
why. Drops are in points, a hundredth of the score. The models and data are those of `int8.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from int8 import Case, cases, compress

NEWER = ["a100", "a10g", "l4", "rtx4090"]
REASON = 160  # characters of a message
PROFILES = {
    "minilm": [{"batch": "1/1/1", "sequence_length": "8/64/128"}, {"batch": "1/8/32", "sequence_length": "8/64/128"}]
}
SAMPLES = {"efficientnet_lite0": 300, "crepe_tiny": 200, "minilm": 300}
LEARNT = {"kws": 200}


def main() -> None:
    """Run all and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--only", nargs="+")
    given = parser.parse_args()
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    columns = ("model", "rung", "engine", "size", "build, s", "score", "drop, points")
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases(given.shared.resolve(), given.minilm, Path(folder)).items():
            if not given.only or name in given.only:
                for line in rows(name, run(name, case, Path(folder) / name)):
                    print(line, flush=True)
    print(flush=True)
    subprocess.run([sys.executable, "-m", "compressor", "doctor"], check=True)


def run(name: str, case: Case, folder: Path) -> dict[str, Any]:
    """Climb all rungs, and give the report."""
    folder.mkdir()
    evaluation = case.data["evaluation"] | ({"samples": SAMPLES[name]} if name in SAMPLES else {})
    calibration = case.data["calibration"] | ({"samples": LEARNT[name]} if name in LEARNT else {})
    profiles = {"profiles": PROFILES[name]} if name in PROFILES else {}
    asked = {
        "data": case.data | {"calibration": calibration, "evaluation": evaluation},
        "gates": [{"accuracy": {"min": 0}}],
        "engine": {"tensorrt": {"devices": NEWER} | profiles},
        "rungs": [
            rung("fp32", ["fuse"], NEWER, profiles | {"precision": "fp32"}),
            rung("fp16", ["fuse"], [*NEWER, "t4"], profiles | {"precision": "fp16"}),
            rung("int8", ["quantize", "fuse"], NEWER, profiles | {"precision": "int8"}),
        ],
        "registry": {"uri": "none"},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(asked))
    words = ("run", str(case.model), "--recipe", f"{folder}/recipe.yaml", "--output", f"{folder}/reports", "--all")
    ended = compress(*words)
    if not ended.stdout:
        sys.exit(ended.stderr)
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def rung(name: str, stages: list[Any], devices: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """Give a rung with an engine of its own."""
    return {"name": name, "stages": stages, "engine": {"tensorrt": {"devices": devices} | settings}}


def rows(name: str, report: dict[str, Any]) -> Iterator[str]:
    """Give a line for each engine, after one for the original."""
    before = report["baseline"]["score"]
    yield f"| {name} | original | | {size(report['model']['size_bytes'])} | | {score(before)} | |"
    for trial in report["trials"]:
        if trial["failure"]:
            yield f"| {name} | {trial['rung']} | {trial['failure']['reason'][:REASON]} | | | | |"
        for artifact in trial["artifacts"]:
            file = artifact["files"][0]
            lost = "" if trial["score"] is None else f"{100 * trial['score']['drop']:+.2f}"
            cells = (PurePosixPath(file["path"]).name, size(file["size_bytes"]), f"{artifact['build_s']:.1f}")
            yield f"| {name} | {trial['rung']} | {' | '.join(cells)} | {score(trial['score'])} | {lost} |"


def size(n_bytes: int) -> str:
    """Give megabytes."""
    return f"{n_bytes / 1e6:.1f} MB"


def score(found: dict[str, Any] | None) -> str:
    """Give a score in hundredths."""
    return "" if found is None else f"{100 * found['value']:.2f} (n = {found['n']})"


if __name__ == "__main__":
    main()
