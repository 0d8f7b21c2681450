"""Random graphs through preparing and quantizing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from by_ranges import db, normal, quantized
from onnx import helper, numpy_helper

from compressor import graph


@pytest.mark.parametrize("seed", range(40))
def test_a_random_graph_stays_within_20_db(seed: int, tmp_path: Path) -> None:
    drawn = Drawn(seed)
    onnx.save(drawn.model(), tmp_path / "given.onnx")
    graph.normalise(tmp_path / "given.onnx", tmp_path / "model.onnx")
    feeds = [{"x": normal((2, 3, 8, 8), number)} for number in range(8)]
    made = quantized(tmp_path / "model.onnx", feeds, tmp_path)
    assert db(tmp_path / "given.onnx", tmp_path / "prepared.onnx", feeds) > 110
    assert db(tmp_path / "given.onnx", made.path, feeds) >= 20


class Drawn:
    """A graph of random layers whose weights are shared, computed, transposed or scaled at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}

    def model(self) -> onnx.ModelProto:
        x, channels = self._images("x", 3) if self._odds(0.6) else ("x", 3)
        pooled = self._op("AveragePool", [x], kernel_shape=[4, 4], strides=[4, 4])
        y = self._rows(self._op("Flatten", [pooled]), channels * 4)
        tensors = [numpy_helper.from_array(array, name) for name, array in self.arrays.items()]
        ends = (
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 3, 8, 8)),
            helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, None),
        )
        main = helper.make_graph(self.nodes, "drawn", ends[:1], ends[1:], tensors)
        return helper.make_model(main, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _images(self, x: str, channels: int) -> tuple[str, int]:
        for _ in range(self.rng.integers(2, 6)):
            kind = self.rng.choice(["Conv", "ConvTranspose", "Relu", "Add", "Clip", "Concat"])
            if kind in {"Conv", "ConvTranspose"}:
                x, channels = self._convolution(str(kind), x, channels)
            elif kind == "Add":
                x = self._op("Add", [x, x if self._odds(0.3) else self._constant((channels, 1, 1))])
            elif kind == "Concat":
                x, channels = self._op("Concat", [x, self._op("Neg", [x])], axis=1), 2 * channels
            else:
                bounds = [self._put(-0.5), self._put(1.5)] if kind == "Clip" else []
                x = self._op(str(kind), [x, *bounds])
        return x, channels

    def _convolution(self, kind: str, x: str, channels: int) -> tuple[str, int]:
        groups = int(self.rng.choice([n for n in (1, 2, 4) if channels % n == 0]))
        made, size = int(self.rng.choice([4, 8])), int(self.rng.choice([1, 3]))
        ends = (made, channels // groups) if kind == "Conv" else (channels, made // groups)
        inputs = [x, self._weight((*ends, size, size)), *self._bias((made,))]
        return self._op(kind, inputs, group=groups, pads=[size // 2] * 4), made

    def _rows(self, x: str, columns: int) -> str:
        for _ in range(self.rng.integers(1, 5)):
            kind = self.rng.choice(["Gemm", "MatMul", "left", "batched", "attention"], p=[0.6, 0.15, 0.05, 0.1, 0.1])
            made = int(self.rng.choice([4, 6, 8]))
            if kind == "Gemm":
                x, columns = self._gemm(x, columns, made), made
            elif kind == "MatMul":
                x, columns = self._op("MatMul", [x, self._weight((columns, made))]), made
            elif kind == "left":
                x = self._op("MatMul", [self._constant((2, 2)), x])
            elif kind == "batched":
                moved = self._op("Transpose", [self._op("MatMul", [x, self._weight((3, columns, 5))])], perm=[1, 0, 2])
                x, columns = self._op("Reshape", [moved, self._put(np.array([2, 15]))]), 15
            else:
                x = self._attention(x, columns)
            if self._odds(0.3):
                x = self._op(*self.rng.choice([["Relu"], ["Tanh"]]), [x])
        return self._op("MatMul", [x, self._constant((columns,))]) if self._odds(0.15) else x

    def _gemm(self, x: str, columns: int, made: int) -> str:
        turned, back = int(self._odds(0.15)), int(self._odds(0.5))
        left = self._op("Transpose", [x], perm=[1, 0]) if turned else x
        weight = self._weight((made, columns) if back else (columns, made))
        shapes = [(made,), (1, made), (1,), (), (2, made), (2, 1)]
        bias = self._bias(shapes[self.rng.integers(len(shapes))])
        if self._odds(0.1):
            bias = [self._op("ReduceMean", [x], axes=[1])]
        factors = {"alpha": float(self.rng.choice([1, 1, 2])), "beta": float(self.rng.choice([1, 1, 1, 0.25, 0]))}
        return self._op("Gemm", [left, weight, *bias], transA=turned, transB=back, **factors)

    def _attention(self, x: str, columns: int) -> str:
        query = self._op("MatMul", [x, self._weight((columns, columns))])
        scores = self._op("MatMul", [query, self._op("Transpose", [x], perm=[1, 0])])
        return self._op("MatMul", [self._op("Softmax", [scores], axis=-1), x])

    def _weight(self, shape: tuple[int, ...]) -> str:
        kind = self.rng.choice(["turned", "scaled", "copied", "reshaped", "plain"], p=[0.15, 0.15, 0.1, 0.1, 0.5])
        if kind == "turned":
            return self._op("Transpose", [self._constant(shape[::-1])])
        if kind == "scaled":
            factors = self.rng.uniform(0.5, 2, (shape[0], *(1,) * (len(shape) - 1)))
            return self._op("Mul", [self._constant(shape), self._put(factors)])
        if kind == "reshaped":
            return self._op("Reshape", [self._constant((math.prod(shape), 1)), self._put(np.array(shape))])
        return self._op("Identity", [self._constant(shape)]) if kind == "copied" else self._constant(shape)

    def _bias(self, shape: tuple[int, ...]) -> list[str]:
        if self._odds(0.3):
            return []
        return [self._op("Mul", [self._constant(shape), self._put(0.5)]) if self._odds(0.15) else self._constant(shape)]

    def _constant(self, shape: tuple[int, ...]) -> str:
        """Give a constant, often one that another node reads too."""
        same = [name for name, array in self.arrays.items() if array.shape == shape and array.dtype == np.float32]
        if same and self._odds(0.35):
            return str(self.rng.choice(same))
        return self._put(self.rng.normal(size=shape, scale=(math.prod(shape[1:]) or 1) ** -0.5))

    def _put(self, value: Any) -> str:
        array, name = np.asarray(value), f"c{len(self.arrays)}"
        self.arrays[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
        return name

    def _op(self, kind: str, inputs: Iterable[str], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{name}", **attributes))
        return name

    def _odds(self, share: float) -> bool:
        return bool(self.rng.random() < share)
