"""Files of public bug reports through the real command: each is treated as the manifest says is right."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bug_reports import BLOATED, INT8, QUANTIZED_ALREADY, RANDOM, SHORT, Run, accuracy, drawn, worst_db
from onnx import numpy_helper
from whole_run import EMULATED, KERNELS, compress, feeds, float_kernels, opened, samples, shapes, sqnr_db

pytestmark = pytest.mark.shared


def test_a_shared_weight_is_stored_once_and_its_biases_apart(run: Run) -> None:
    for rung in ("core", "all"):
        graph = run("01_shared_weight_bias_two_convs.onnx").graph(rung)
        stored = Counter(tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 4)
        assert stored == {onnx.TensorProto.INT8: 1}


def test_a_scale_for_each_channel_of_a_convtranspose_lies_on_its_second_axis(run: Run) -> None:
    graph = run("03_convtranspose_cin3_cout5.onnx").graph("all")
    sizes = shapes(graph)
    (kernel,) = [node for node in graph.node if node.op_type == "ConvTranspose"]
    scaling = next(node for node in graph.node if kernel.input[1] in node.output)
    axis = next((onnx.helper.get_attribute_value(a) for a in scaling.attribute if a.name == "axis"), 1)
    assert (axis, sizes[scaling.input[1]]) == (1, (5,))


def test_weights_in_constant_nodes_are_counted_and_quantized(run: Run) -> None:
    ended = run("09_weights_as_constant_nodes.onnx")
    assert ended.report["model"]["parameters"] == 8 * 3 * 9 + 8 + 32
    assert float_kernels(ended.graph("core")) == 0


def test_weights_that_are_inputs_are_none_of_what_is_made(run: Run) -> None:
    ended = run("10_initializers_also_inputs_ir3.onnx")
    for artifact in ended.artifacts().values():
        assert [value.name for value in onnx.load(artifact).graph.input] == ["x"]
    assert list(ended.report["baseline"]["measurement"]["latency"]["shape"]) == ["x"]


def test_a_tied_embedding_makes_nothing_larger(run: Run, shared: Path) -> None:
    case = "13_tied_embedding_head.onnx"
    for rung, artifact in run(case).artifacts().items():
        assert artifact.stat().st_size < (shared / "cases" / case).stat().st_size, rung
        tables = [dims for dims in shapes(onnx.load(artifact).graph).values() if math.prod(dims) >= 200 * 16]
        assert len(tables) == 1, rung


def test_one_of_three_nameless_convs_is_left_out_by_a_name_that_stays(run: Run) -> None:
    case = "14_nodes_without_names.onnx"
    convs = [node.name for node in run(case).graph("core").node if node.op_type == "Conv"]
    assert len(set(convs)) == 3
    recipe = SHORT.replace("scheme: static", f"scheme: static, exclude: [{convs[1]}]")
    graph = run(case, recipe=recipe).graph("core")
    assert [node.name for node in graph.node if node.op_type == "Conv"] == convs
    assert float_kernels(graph) == 1


def test_odd_names_survive_and_parse(run: Run) -> None:
    ended = run("16_names_slash_colon_space_unicode.onnx", "--shape", "input.1:0=1x3x8x8")
    assert ended.report["recipe"]["shapes"] == {"input.1:0": "1x3x8x8"}
    for artifact in ended.artifacts().values():
        graph = onnx.load(artifact).graph
        assert [value.name for value in (*graph.input, *graph.output)] == ["input.1:0", "StatefulPartitionedCall:0"]
    assert all(
        character.isalnum() or character in "._-" for rung in ended.artifacts().values() for character in rung.name
    )


def test_empty_and_small_inputs_of_a_resize_are_no_weights(run: Run) -> None:
    for rung in ("core", "all"):
        graph = run("18_resize_empty_roi_initializer.onnx").graph(rung)
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        (resize,) = [node for node in graph.node if node.op_type == "Resize"]
        assert arrays[resize.input[2]].tolist() == [1, 1, 2, 2]


def test_channels_without_weights_are_pruned_without_loss(run: Run, shared: Path, manifest: Mapping[str, Any]) -> None:
    for case in ("21_dead_channels_with_bias.onnx", "70_planted_dead_flatten.onnx"):
        artifact = run(case).artifacts()["cut"]
        assert worst_db(shared, manifest, case, artifact) > 100, case
        assert artifact.stat().st_size < (shared / "cases" / case).stat().st_size


def test_a_report_says_on_which_instructions_its_accuracy_was_seen(run: Run) -> None:
    ended = run("22_u8s8_saturation_avx2.onnx")
    assert ended.folder
    isa = ended.report["environment"]["isa"]
    assert isa
    assert all(word in (ended.folder / "report.md").read_text(encoding="utf-8") for word in isa)


def test_what_is_quantized_keeps_its_scales_and_is_told(run: Run, shared: Path) -> None:
    ended = run(QUANTIZED_ALREADY)
    before = onnx.load(shared / "cases" / QUANTIZED_ALREADY).graph
    told = "left as it is: it is quantized already"
    assert told in [stage["did"] for stage in ended.trials["core"]["stages"]]
    assert "quantized already" in ended.trials["cut"]["failure"]["reason"]
    assert ended.report["chosen"] in {"baseline", None}
    for rung in INT8:
        after = ended.graph(rung)
        assert Counter(node.op_type for node in after.node) == Counter(node.op_type for node in before.node)
        kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in after.initializer}
        for tensor in before.initializer:
            assert np.array_equal(kept[tensor.name], numpy_helper.to_array(tensor)), tensor.name


def test_float16_stays_at_both_ends_and_goes_inside(run: Run) -> None:
    for rung in ("core", "all"):
        graph = run("25_float16_everywhere.onnx").graph(rung)
        ends = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        assert ends == {onnx.TensorProto.FLOAT16}
        assert {tensor.data_type for tensor in graph.initializer if len(tensor.dims) > 1} == {onnx.TensorProto.INT8}


def test_inputs_that_share_symbols_share_sizes(run: Run) -> None:
    case = "27_multi_input_int64_bool_float.onnx"
    asked = [word for name in ("input_ids", "attention_mask") for word in ("--shape", f"{name}=2x5")]
    ended = run(case, *asked, recipe=SHORT, data=False)
    assert ended.code == 4  # made-up inputs prove nothing
    assert ended.report["baseline"]["measurement"]["latency"]["shape"] == {
        "input_ids": "2x5",
        "attention_mask": "2x5",
        "flag": "",
        "bias_in": "1x1x8",
    }
    session = opened(ended.artifacts()["core"])
    for seq in (1, 7):
        ids = np.ones((3, seq), np.int64)
        more = {"flag": np.array(True), "bias_in": np.zeros((1, 1, 8), np.float32)}  # noqa: FBT003
        (y,) = session.run(None, {"input_ids": ids, "attention_mask": ids, **more})
        assert y.shape == (3, seq, 8)


def test_the_opset_is_raised_with_its_nodes(run: Run, shared: Path) -> None:
    case = "28_opset9_slice_attributes.onnx"
    before = onnx.load(shared / "cases" / case).graph
    for artifact in run(case).artifacts().values():
        model = onnx.load(artifact)
        onnx.checker.check_model(model)
        assert next(one.version for one in model.opset_import if not one.domain) >= 13
        ends = [value.name for value in (*model.graph.input, *model.graph.output)]
        assert ends == [value.name for value in (*before.input, *before.output)]


def test_channels_stay_divisible_by_their_groups(run: Run) -> None:
    ended = run("30_opset21_gelu_groupnorm.onnx")
    for rung in ended.artifacts():
        graph = ended.graph(rung)
        (norm,) = [node for node in graph.node if node.op_type == "GroupNormalization"]
        (groups,) = [onnx.helper.get_attribute_value(a) for a in norm.attribute if a.name == "num_groups"]
        assert groups == 4
        assert shapes(graph)[norm.input[1]][0] % groups == 0


def test_training_mode_is_warned_about_and_never_folded(run: Run) -> None:
    ended = run("32_batchnorm_training_mode.onnx")
    assert any("training mode" in warning for warning in ended.report["warnings"])
    for rung in ended.artifacts():
        (norm,) = [node for node in ended.graph(rung).node if node.op_type == "BatchNormalization"]
        assert {a.name: onnx.helper.get_attribute_value(a) for a in norm.attribute}["training_mode"] == 1


def test_a_random_model_is_called_so_and_neither_blamed_nor_approved(run: Run) -> None:
    ended = run(RANDOM)
    assert ended.code == 4
    assert any("other outputs when it is run again" in warning for warning in ended.report["warnings"])
    assert {"core", "all"} <= set(ended.artifacts())
    for rung in ended.artifacts():
        assert accuracy(ended.trials[rung]) is None
        assert "RandomNormalLike" in [node.op_type for node in ended.graph(rung).node]


def test_text_is_compared_by_equality(run: Run) -> None:
    ended = run("36_string_output.onnx")
    for rung in INT8:
        last = ended.trials[rung]["stages"][-1]["sqnr_db"]
        assert last["label"] == 200
        assert 20 < last["s"] < 200
        assert list(ended.trials[rung]["measurement"]["errors"]) == ["s"]


@pytest.mark.slow
def test_the_signature_in_the_registry_holds_text(run: Run, tmp_path: Path) -> None:
    import mlflow

    recipe = SHORT.replace("50ms", "3s")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    ended = run("36_string_output.onnx", "--registry", uri, "--name", "labels", recipe=recipe)
    assert ended.code == 0, ended.err
    mlflow.set_registry_uri(uri)
    mlflow.set_tracking_uri(uri)
    signature = mlflow.models.get_model_info("models:/labels/1").signature
    label = signature.outputs.inputs[0]
    assert (label.name, label.type.kind) == ("label", "U")


def test_metadata_survive_every_stage_and_ours_are_added(run: Run, shared: Path) -> None:
    case = "39_metadata_props.onnx"
    before = onnx.load(shared / "cases" / case)
    for artifact in run(case).artifacts().values():
        after = onnx.load(artifact)
        assert (after.model_version, after.domain, after.doc_string) == (42, before.domain, before.doc_string)
        kept = {entry.key: entry.value for entry in after.metadata_props}
        old = {entry.key: entry.value for entry in before.metadata_props}
        assert old.items() <= kept.items()
        assert {key for key in kept if key not in old if not key.startswith("compressor.")} == set()
        assert after.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
        assert after.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_external_data_are_counted_and_never_touched_nor_appended_to(shared: Path, tmp_path: Path) -> None:
    source = shared / "cases" / "40_external_data"
    sizes = {path.name: path.stat().st_size for path in source.iterdir()}
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in source.iterdir()}
    (tmp_path / "recipe.yaml").write_text(SHORT, encoding="utf-8")
    words = ["--recipe", tmp_path / "recipe.yaml", "--registry", "none", "--output", tmp_path / "reports"]
    ended = [compress("run", source / "model.onnx", "--sla", "1s", "--all", "--threads", 1, *words) for _ in range(2)]
    assert ended[0].report["model"]["size_bytes"] == sum(sizes.values())
    assert ended[0].folder != ended[1].folder
    made = [one.artifacts(baseline=True) for one in ended]
    for rung in ("baseline", "core"):
        beside = [sorted(path.name for path in each[rung].parent.glob("model*")) for each in made]
        assert beside[0] == beside[1]
        assert [each[rung].read_bytes() for each in made[:1]] == [each[rung].read_bytes() for each in made[1:]]
    alone = shutil.copytree(made[1]["core"].parent, tmp_path / "moved")
    assert opened(alone / "model.onnx").run(None, {"x": np.zeros((1, 3, 8, 8), np.float32)})[0].shape == (1, 16, 4, 4)
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in source.iterdir()} == hashes


def test_an_attention_mask_of_the_least_float_leaves_scores_alive(
    run: Run, shared: Path, manifest: Mapping[str, Any]
) -> None:
    case = "47_attention_mask_float_min.onnx"
    model = shared / "cases" / case
    fed = feeds(model, drawn(shared, manifest, case, 24, seed=7))
    assert all(int(feed["mask"].sum()) == 3 for feed in fed)
    for rung, artifact in run(case).artifacts().items():
        if rung in INT8:
            assert min(sqnr_db(model, artifact, fed).values()) > 20


def test_a_branch_that_is_always_zero_is_named(run: Run) -> None:
    ended = run("49_always_zero_activation.onnx")
    assert ended.folder
    (note,) = [note for stage in ended.trials["core"]["stages"] for note in stage["notes"]]
    assert "always zero on all calibration samples: 'r'" in note
    assert "always zero on all calibration samples" in (ended.folder / "report.md").read_text(encoding="utf-8")


def test_pruning_keeps_coupled_channels_and_classes(run: Run) -> None:
    graph = run("51_residual_dw_se_classifier.onnx").graph("cut")
    sizes = shapes(graph)
    for node in graph.node:
        if node.op_type == "Conv":
            group = next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == "group"), 1)
            assert group in {1, sizes[node.input[1]][0]}
    (head,) = [node for node in graph.node if node.op_type in {"Gemm", "MatMul"} and node.output[0] == "y"]
    assert 10 in sizes[head.input[1]]


@pytest.mark.parametrize("case", ["52_conv_flatten_gemm.onnx", "70_planted_dead_flatten.onnx"])
def test_a_channel_owns_sixteen_columns_of_the_gemm_behind_it(case: str, run: Run) -> None:
    graph = run(case).graph("cut")
    sizes = shapes(graph)
    (conv,) = [node for node in graph.node if node.op_type == "Conv"]
    (gemm,) = [node for node in graph.node if node.op_type == "Gemm"]
    channels = sizes[conv.input[1]][0]
    assert channels < 8
    assert 16 * channels in sizes[gemm.input[1]]


def test_what_nothing_reads_is_no_merit_of_int8_and_an_unused_input_stays(run: Run) -> None:
    ended = run("55_unused_initializer_and_input.onnx")
    for artifact in ended.artifacts().values():
        assert [value.name for value in onnx.load(artifact).graph.input] == ["x", "never_used"]
    clean_up, quantize, *_ = ended.trials["core"]["stages"]
    assert clean_up["did"] == "Dropped 2 unused tensors (262 kB)."
    assert "unused" not in quantize["did"]


def test_open_sizes_are_listed_and_stay_open(run: Run, shared: Path) -> None:
    case = "57_dynamic_batch_height_width.onnx"
    refused = compress("run", shared / "cases" / case, "--sla", "1s", "--registry", "none")
    assert refused.code == 2
    assert all(name in refused.err for name in ("height", "width"))
    for artifact in run(case).artifacts().values():
        for batch, height, width in ((1, 8, 8), (3, 12, 10), (1, 12, 10), (3, 8, 8)):
            x = np.random.default_rng(0).standard_normal((batch, 3, height, width)).astype(np.float32)
            wanted = opened(shared / "cases" / case).run(None, {"x": x})[0]
            found = opened(artifact).run(None, {"x": x})[0]
            assert found.shape == wanted.shape
            assert np.square(found - wanted).sum() < 0.01 * np.square(wanted).sum()


def test_folding_constants_never_bloats_the_file(run: Run, shared: Path) -> None:
    ended = run(BLOATED, recipe="rungs: [{name: fused, stages: [fuse]}]\nlimits: {measure: 50ms}\n", data=False)
    size_bytes = (shared / "cases" / BLOATED).stat().st_size
    assert all(artifact.stat().st_size < 2 * size_bytes for artifact in ended.artifacts(baseline=True).values())
    assert set(ended.artifacts()) == {"fused"}


def test_a_slower_rung_is_never_chosen(run: Run) -> None:
    ended = run("60_int8_slower_than_fp32.onnx")
    for trial in ended.report["trials"]:
        speedup = (trial["measurement"] or {}).get("speedup")
        if speedup and speedup["high"] < 0.98:
            assert ended.report["chosen"] != trial["rung"]
            assert "speed" in [verdict["gate"] for verdict in trial["verdicts"] if verdict["met"] is not True]


def test_an_output_without_a_shape_gets_one(run: Run) -> None:
    for artifact in run("68_output_without_shape.onnx").artifacts().values():
        onnx.checker.check_model(artifact)
        (output,) = onnx.load(artifact).graph.output
        assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [1, 4, 6, 6]


def test_channels_are_cut_to_counts_that_kernels_like(run: Run) -> None:
    recipe = "rungs: [{name: cut, stages: [{prune: {ratio: 20%}}]}]\nlimits: {measure: 50ms}\n"
    ended = run("72_odd_channel_counts.onnx", recipe=recipe)
    kept = [tensor.dims[0] for tensor in ended.graph("cut").initializer if len(tensor.dims) == 4]
    cut = [count for count in kept if count not in {67, 131, 10}]
    assert cut
    assert all(count % 8 == 0 for count in cut)
    assert ended.trials["cut"]["measurement"]["latency"]["n"] > 0


def test_ways_of_running_differ_where_kernels_saturate(shared: Path) -> None:
    model = shared / "cases" / QUANTIZED_ALREADY
    found = sqnr_db(model, model, feeds(model, samples(model, {}, 4, seed=0)))
    assert found["y", EMULATED] == math.inf
    assert found["y", KERNELS] > 20
