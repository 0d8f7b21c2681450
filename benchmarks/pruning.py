"""What can be pruned of real models, and why what is left is rounded.

    python benchmarks/pruning.py --shared ../shared [--minilm paraphrase-MiniLM-L3-v2.onnx] [--only NAME ...]

The first table is of the analysis: how much of the multiply-accumulates goes if every layer keeps an eighth, which
operators hold on to the rest, how long it takes, and its peak memory over that of the loaded model. The second is of
the same 20 % cut with channels as they come (multiples of 1) and rounded: each is timed beside the unpruned model,
call by call in turn, on one thread. Ratios are of one run on this machine, which the last lines describe.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import models
import numpy as np
import psutil
from onnx import TensorProto, helper, save

from compressor import graph, samples
from compressor.errors import RungError
from compressor.records import Shapes
from compressor.stages import Prune, Supply
from compressor.stages.prune import cost
from compressor.stages.prune.choose import LEAST_KEPT
from compressor.stages.prune.groups import Coupled, analyse

TIMED = (
    "resnet20",
    "resnet56",
    "resnet8",
    "efficientnet_lite0",
    "kws",
    "crepe_tiny",
    "ultraface",
    "ppocr_cls",
    "minilm",
)
FILES = {"kws": "mlperf_tiny_kws_dscnn_bn", "resnet8": "mlperf_tiny_resnet8_cifar10", "resnet20": "resnet20_cifar10"}
FILES |= {"resnet56": "resnet56_cifar10", "ultraface": "ultraface_rfb320", "silero_vad": "silero_vad_16k_op15"}
REAL = (
    "resnet20",
    "resnet56",
    "resnet8",
    "efficientnet_lite0",
    "kws",
    "crepe_tiny",
    "ultraface",
    "ppocr_cls",
    "silero_vad",
)
MULTIPLES = (1, 8, 16)
OPEN = 64  # of a dimension that is open, but for the first, which is 1
WIDTH, HEADS, BLOCKS = 768, 12, 12  # of BERT-base


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--analyse", type=Path, help=argparse.SUPPRESS)  # in a process of its own
    given = parser.parse_args()
    if given.analyse:
        print(json.dumps(analysed(given.analyse)))
        return
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    with tempfile.TemporaryDirectory() as folder:
        found = dict(normalised(given.shared, given.minilm, Path(folder), given.only))
        _analysis(found)
        _rounding({name: path for name, path in found.items() if name in TIMED}, Path(folder))
    subprocess.run([sys.executable, "-m", "compressor", "doctor"], check=True)


def normalised(shared: Path, minilm: Path | None, folder: Path, only: list[str] | None) -> Iterator[tuple[str, Path]]:
    """Bring the models into normal form."""
    paths = {name: shared / "models" / f"{FILES.get(name, name)}.onnx" for name in REAL}
    paths |= {"minilm": minilm} if minilm else {}
    paths |= {"vit_tiny (random)": models.write("vit_tiny", folder), "bert_base (random)": _bert(folder / "bert.onnx")}
    for name, path in paths.items():
        if not only or name in only:
            graph.normalise(path, out := folder / f"{name.split()[0]}-normal.onnx")
            yield name, out


def analysed(path: Path) -> dict[str, Any]:
    """Analyse a model, with the time and the memory that it takes."""
    import onnx_ir  # noqa: F401 - imports are not what is timed
    import scipy.sparse.csgraph

    del scipy
    model = graph.load(path)
    loaded = psutil.Process().memory_info().rss
    peak, done = [loaded], threading.Event()
    watching = threading.Thread(target=_watch, args=(peak, done))
    watching.start()
    start = time.perf_counter()
    coupled = analyse(model)
    seconds = time.perf_counter() - start
    done.set()
    watching.join()
    return {"seconds": seconds, "memory": peak[0] - loaded, "file": path.stat().st_size, **_found(coupled, path)}


def _analysis(found: dict[str, Path]) -> None:
    header = (
        "| model | nodes | groups | units | MACs that can go | layers that stay | held by | analysis | memory | file |"
    )
    print(header + "\n" + "| --- " * 10 + "|")
    for name, path in found.items():
        words = [sys.executable, __file__, "--analyse", str(path)]
        row = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        held = ", ".join(f"{n} {kind}" for kind, n in row["held"])
        macs = "-" if row["macs"] is None else f"{row['macs']:.1%}"
        print(
            f"| {name} | {row['nodes']} | {row['groups']} | {row['units']} | {macs} | {row['frozen']} | {held} "
            f"| {row['seconds']:.2f} s | {row['memory'] / 1e6:.0f} MB | {row['file'] / 1e6:.1f} MB |",
            flush=True,
        )


def _rounding(found: dict[str, Path], folder: Path) -> None:
    header = "".join(f" multiples of {n}: MACs gone | speed-up |" for n in MULTIPLES)
    print(f"\n| model |{header}\n" + "| --- " * (1 + 2 * len(MULTIPLES)) + "|")
    for name, path in found.items():
        cells = []
        for multiple in MULTIPLES:
            pruned = folder / f"{path.stem}-{multiple}.onnx"
            gone = _cut(path, pruned, multiple, folder)
            cells += [f"{gone:.1%}", _speedup(path, pruned)] if gone else ["refused", "-"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _cut(path: Path, out: Path, multiple: int, folder: Path) -> float:
    """Prune a fifth; give the share of multiply-accumulates that went."""
    model = graph.open_model(path)
    drawn = samples.synthetic(model.inputs, _shapes(path), 4, 0, dict(graph.index_limits(path)))
    work = Prune(ratio="20%", multiple=multiple).apply(model, Supply(drawn, drawn, folder), out)
    while True:
        try:
            next(work)
        except StopIteration as end:
            before, after = end.value.pruned.macs
            return float(1 - after / before)


def _speedup(before: Path, after: Path) -> str:
    shapes = [
        word for name, dims in _shapes(before).items() for word in ("--shape", f"{name}={'x'.join(map(str, dims))}")
    ]
    words = [
        sys.executable,
        "-m",
        "compressor",
        "compare",
        str(before),
        str(after),
        "--threads",
        "1",
        "--json",
        "--quiet",
    ]
    ended = subprocess.run([*words, *shapes], check=False, capture_output=True, text=True)
    if not ended.stdout:
        return ended.stderr.strip()[-80:]
    speedup = json.loads(ended.stdout)["after"]["measurement"]["speedup"]
    return f"{speedup['ratio']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]"


def _shapes(path: Path) -> Shapes:
    shapes = {t.name: t.shape or () for t in graph.open_model(path).inputs}
    return {
        name: tuple(d if isinstance(d, int) else OPEN if i else 1 for i, d in enumerate(dims))
        for name, dims in shapes.items()
    }


def _found(coupled: Coupled, path: Path) -> dict[str, Any]:
    try:
        macs = cost.macs(coupled, _shapes(path))
        most = np.array([int(len(g.units) * (1 - LEAST_KEPT)) for g in coupled.groups])
        share = 1 - macs.left(most) / macs.total
    except RungError:  # shapes do not settle it
        share = None
    held = Counter(one.reasons[0].split()[0] for one in coupled.frozen)
    names = Counter({"an output": held.pop("the", 0)}) + held
    return {
        "nodes": len(coupled.model.graph),
        "groups": len(coupled.groups),
        "units": sum(len(group.units) for group in coupled.groups),
        "macs": share,
        "frozen": len(coupled.frozen),
        "held": names.most_common(3),
    }


def _watch(peak: list[int], done: threading.Event) -> None:
    process = psutil.Process()
    while not done.is_set():
        peak[0] = max(peak[0], process.memory_info().rss)
        time.sleep(0.002)


def _bert(path: Path) -> Path:
    """Write a transformer of BERT-base's size, as exporters write it, with random weights."""
    net = models.Net(np.random.default_rng(0))
    x = models.Value("x", WIDTH)
    heads, whole = net.constant((0, 0, HEADS, WIDTH // HEADS), np.int64), net.constant((0, 0, WIDTH), np.int64)
    for _ in range(BLOCKS):
        x = _norm(net, net.op("Add", x, _attended(net, x, heads, whole).name))
        inner = net.linear(x, 4 * WIDTH)
        erf = net.op("Erf", net.op("Div", inner, net.constant(np.sqrt(2))))
        inner = net.op("Mul", net.op("Mul", inner, net.op("Add", erf, net.constant(1)).name), net.constant(0.5))
        x = _norm(net, net.op("Add", x, net.linear(inner, WIDTH).name))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "s", WIDTH]) for name in ("x", x.name)]
    made = helper.make_graph(net.nodes, "bert", ends[:1], ends[1:], net.weights)
    opset = [helper.make_opsetid("", models.OPSET)]
    save(helper.make_model(made, opset_imports=opset, ir_version=models.IR), path)
    return path


def _attended(net: models.Net, x: models.Value, heads: str, whole: str) -> models.Value:
    q, k, v = (net.op("Reshape", net.linear(x, WIDTH), heads) for _ in range(3))
    q, v = (net.op("Transpose", one, perm=[0, 2, 1, 3]) for one in (q, v))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 3, 1]).name)
    weights = net.op("Softmax", net.op("Mul", scores, net.constant((WIDTH // HEADS) ** -0.5)))
    mixed = net.op("Transpose", net.op("MatMul", weights, v.name), perm=[0, 2, 1, 3])
    return net.linear(net.op("Reshape", mixed, whole), WIDTH)


def _norm(net: models.Net, x: models.Value) -> models.Value:
    return net.op("LayerNormalization", x, net.constant(np.ones(WIDTH)), net.constant(np.zeros(WIDTH)))


if __name__ == "__main__":
    main()
