from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from compressor import records as r
from compressor.formats import markdown
from compressor.formats.markdown import markup

HARMFUL = "a|b <script>x</script> <https://x.y> `code` *c* [d](e) &amp; \\ $f$ ~~g~~ _h_\n# i"
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _tables(text: str) -> list[list[list[str]]]:
    """Read the tables as a Markdown reader sees them: the text of each cell."""
    tables: list[list[list[str]]] = []
    for token, following in zip(PARSER.parse(text), [*PARSER.parse(text)[1:], None], strict=True):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in ("th_open", "td_open"):
            assert following
            tables[-1][-1].append(_plain(following))
    return tables


def _plain(inline: Any) -> str:
    return "".join(child.content for child in inline.children)


def _kinds(text: str) -> set[str]:
    tokens = PARSER.parse(text)
    return {kind.type for token in tokens for kind in (token, *(token.children or ()))}


def _section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _first_paragraph(report: r.Report) -> str:
    return markdown.render(report).split("\n\n")[1]


def test_the_verdict_comes_first_with_size_speed_and_score(report: r.Report) -> None:
    assert markdown.render(report).startswith("# net: pass\n")
    verdict = _first_paragraph(report)
    assert verdict.startswith("**Pass:** int8 meets every gate:")
    assert "25.6 MB → 6.4 MB (4.00 times smaller)" in verdict
    assert "2.50 times as fast (95 % interval 2.25 to 2.75)" in verdict
    assert "top1 0.75 → 0.745 [0.59, 0.89]" in verdict


def test_a_larger_file_is_said_to_be_larger(report: r.Report) -> None:
    larger = replace(report, model=replace(report.model, size_bytes=1_600_000))
    assert "1.6 MB → 6.4 MB (4.00 times larger)" in _first_paragraph(larger)
    same = replace(report, model=replace(report.model, size_bytes=6_400_000))
    assert "6.4 MB → 6.4 MB (1.00 times smaller)" in _first_paragraph(same)


def test_a_pass_does_not_name_the_baseline_as_a_rung_that_did_not_pass(report: r.Report) -> None:
    assert _first_paragraph(report).endswith("(n = 40, 0.744 with exact integers).")


def test_a_pass_names_the_last_rung_before_it_that_did_not_pass(report: r.Report) -> None:
    int8, chosen = report.trials[0], replace(report.trials[0], rung="int8-conv")
    first = _judged(replace(int8, rung="int8-fused"), size=False)
    before = _judged(int8, accuracy=None, latency=False)
    verdict = _first_paragraph(replace(report, chosen="int8-conv", trials=(first, before, chosen)))
    assert verdict.startswith("**Pass:** int8-conv meets every gate:")
    assert verdict.endswith(". int8 did not pass: latency not met, why latency.")


def test_a_pass_does_not_name_a_rung_after_it(report: r.Report) -> None:
    after = _judged(replace(report.trials[0], rung="int8-conv"), latency=False)
    assert "did not pass" not in _first_paragraph(replace(report, trials=(report.trials[0], after)))


def test_a_baseline_that_is_enough_is_said_to_be_served_as_it_is(report: r.Report) -> None:
    met = replace(report.baseline, verdicts=())
    served = "**Pass:** baseline meets every gate: the original model is served as it is."
    broken = "int8-fused was not built: fuse, the simplifier refused it."
    assert _first_paragraph(replace(report, chosen="baseline", baseline=met)) == f"{served} {broken}"
    refused = replace(report, chosen="baseline", baseline=met, trials=(_judged(report.trials[0], accuracy=False),))
    assert _first_paragraph(refused) == f"{served} int8 did not pass: accuracy not met, why accuracy."


def _judged(trial: r.Trial, **met: bool | None) -> r.Trial:
    return replace(
        trial, verdicts=tuple(r.Verdict(gate, m, 1.0, 2.0, None, None, f"why {gate}") for gate, m in met.items())
    )


def test_a_fail_names_the_unmet_gate_of_the_last_candidate(report: r.Report) -> None:
    trials = (_judged(report.trials[0], size=True, speed=None, latency=False), report.trials[1])
    verdict = _first_paragraph(replace(report, verdict="fail", chosen=None, trials=trials))
    start = "**Fail:** no candidate meets every gate. Decided at int8: latency not met, why latency."
    assert verdict == f"{start} int8-fused was not built: fuse, the simplifier refused it."


def test_a_fail_names_every_gate_that_decided(report: r.Report) -> None:
    trials = (_judged(report.trials[0], size=False, speed=None, latency=False),)
    verdict = _first_paragraph(replace(report, verdict="fail", chosen=None, trials=trials))
    assert verdict.endswith("Decided at int8: size not met, why size; latency not met, why latency.")


def test_an_inconclusive_run_names_the_undecided_gate_of_the_candidate_without_an_unmet_one(report: r.Report) -> None:
    trials = (_judged(report.trials[0], latency=True, accuracy=None), _judged(report.trials[1], latency=False))
    verdict = _first_paragraph(
        replace(report, verdict="inconclusive", chosen=None, trials=(trials[0], replace(trials[1], failure=None)))
    )
    assert verdict.startswith("**Inconclusive:**")
    assert verdict.endswith("Decided at int8: accuracy undecided, why accuracy.")


def test_every_rung_has_its_row_and_the_chosen_one_is_marked(report: r.Report) -> None:
    header, baseline, int8, broken = _tables(_section(markdown.render(report), "Rungs"))[0]
    assert header == ["rung", "verdict", "size", "p50", "p99", "speed-up", "score", "drop"]
    assert baseline[:2] == ["baseline", "not met: latency p99"]
    assert int8[0] == "int8 (chosen)"
    assert int8[2:6] == [
        "6.4 MB",
        "1 ms (at most 1 ms)",
        "31.5 ms (at most 33.2 ms)",
        "2.50 [2.25, 2.75], over 78.5 ms, 8 rounds (2.12 to 2.88)",
    ]
    assert int8[6:] == ["0.745 [0.59, 0.89] (n = 40, 0.744 with exact integers)", "0.005 [-0.01, 0.02]"]
    assert int8[1] == "met"
    assert broken == ["int8-fused", "not built (fuse): the simplifier refused it", *["-"] * 6]


def test_a_percentile_without_a_bound_is_no_firm_number(report: r.Report) -> None:
    others = _tables(_section(markdown.render(report), "Other shapes and loads"))[0]
    assert others[0] == ["rung", "at", "shape", "load", "p50", "p99", "throughput"]
    assert others[1] == [
        *("int8", "batch 8", "input 1x3x8x8", "closed (overloaded)"),
        *("at least 1 ms", "at least 60 ms", "offered 300/s, answered 120/s"),
    ]
    measured = report.trials[0].measurement
    assert measured
    few = _int8(report, others=(replace(measured.others[0], overloaded=False),))
    assert _tables(_section(markdown.render(few), "Other shapes and loads"))[0][1][4:6] == [
        *("1 ms (at most 1 ms)", "n = 100, too few")
    ]
    assert "60 ms" not in markdown.render(few)


def test_the_foot_says_of_which_calls_the_times_are(report: r.Report) -> None:
    foot = _section(markdown.render(report), "Rungs")
    assert "a rung's times are of calls that alternate with the baseline's in the same process" in foot
    assert "the baseline's own row is of its calls alone" in foot


def test_what_a_rung_takes_stands_in_a_table(report: r.Report) -> None:
    header, baseline, int8 = _tables(_section(markdown.render(report), "What it takes"))[0]
    assert header == ["rung", "load", "first call", "start", "peak memory", "throughput", "cost per million"]
    assert baseline == ["baseline", "30.5 ms", "9 ms", "-", "5 MB", "120/s [110/s, 130/s]", "-"]
    assert int8 == ["int8", "30.5 ms", "9 ms", "120 ms (at most 150 ms)", "4 MB", "120/s [110/s, 130/s]", "0.12 USD"]


def test_what_changed_in_the_outputs_names_each_output_and_the_worst_class(report: r.Report) -> None:
    changed = _section(markdown.render(report), "What changed in the outputs")
    assert "- **int8**, logits: SQNR 31.2 dB; relative error 3.00 % on average, 5.00 % at the 95th" in changed
    assert "- **int8**, worst class 7, 75.00 % → 50.00 % of 12 samples, drops by 25.00 % (12.50 % to 37.5" in changed
    assert "(top1)" in changed


def test_sizes_and_rates_of_gates_are_written_for_people(report: r.Report) -> None:
    size = r.Verdict("size", True, 6_400_000, 8_000_000, None, None, "why", unit="B")  # noqa: FBT003
    trial = replace(report.trials[0], verdicts=(size, replace(size, gate="throughput", limit=1500.0, unit="/s")))
    rows = _tables(_section(markdown.render(replace(report, trials=(trial,))), "Gates"))[0]
    assert [row[3:5] for row in rows[2:]] == [["6.4 MB", "8 MB"], ["6,400,000/s", "1,500/s"]]


def _int8(report: r.Report, **changed: Any) -> r.Report:
    """Give the report with another measurement of the chosen rung."""
    trial = report.trials[0]
    assert trial.measurement
    return replace(report, trials=(replace(trial, measurement=replace(trial.measurement, **changed)),))


def _int8_row(report: r.Report) -> list[str]:
    return _tables(_section(markdown.render(report), "Rungs"))[0][2]


def test_a_speed_up_over_an_unknown_time_stands_alone(report: r.Report) -> None:
    assert _int8_row(_int8(report, speedup=r.Speedup(2.5, 2.25, 2.75)))[5] == "2.50 [2.25, 2.75]"
    assert _int8_row(_int8(report, speedup=None))[5] == "-"


def test_times_below_a_millisecond_stand_in_microseconds(report: r.Report) -> None:
    measured = report.trials[0].measurement
    assert measured
    latency = replace(measured.latency, p50_ms=0.25, p50_high_ms=0.5)
    assert _int8_row(_int8(report, latency=latency))[3] == "250 µs (at most 500 µs)"


def test_gates_stand_with_interval_and_reason(report: r.Report) -> None:
    rows = _tables(_section(markdown.render(report), "Gates"))[0]
    assert rows[1] == ["baseline", "latency p99", "not met", "80.25 [79, 82] ms", "50 ms", "80.25 > 50"]
    assert rows[3] == ["int8", "accuracy", "met", "0.005", "0.01", "0.005 is within 0.01"]
    assert len(rows) == 4


def test_a_gate_that_observed_nothing_has_no_unit_without_a_number(report: r.Report) -> None:
    nothing = r.Verdict("latency p99", None, None, None, None, None, "too few", unit="ms")
    baseline = replace(report.baseline, verdicts=(nothing, replace(nothing, limit=50.0)))
    rows = _tables(_section(markdown.render(replace(report, baseline=baseline)), "Gates"))[0]
    assert [row[3:5] for row in rows[1:3]] == [["-", "-"], ["-", "50 ms"]]


def test_an_agreement_is_called_so(report: r.Report) -> None:
    measured = report.baseline.measurement
    assert measured
    assert measured.score
    score = replace(measured.score, metric="agreement", reference=True)
    baseline = replace(report.baseline, measurement=replace(measured, score=score))
    row = _tables(_section(markdown.render(replace(report, baseline=baseline)), "Rungs"))[0][1]
    assert row[6] == "0.75 [0.6, 0.9] (agreement with the original model, n = 40)"
    assert markdown.render(report).count("with the original model") == 0


def test_what_stages_did_stands_with_sqnr_and_audit(report: r.Report) -> None:
    done = _section(markdown.render(report), "What was done")
    assert "quantized 20 of 22 layers (12.5 s, at most 512 MB of memory)" in done
    assert "logits: SQNR 31.2 dB" in done
    assert "ids: SQNR 160.0 dB" in done
    assert "20 nodes in integers (4 QLinearAdd, 16 QLinearConv), 2 Conv, Gemm and MatMul in float, 3 Quan" in done
    assert "left alone, its input has 3 channels: first, last\n" in done
    assert "not fused, HardSwish has no integer kernel: act\n" in done
    assert "not fused, its reader last (Gemm) was left float (too wide): pooled\n" in done
    assert "note: 3 samples are all zero\n" in done


def test_many_nodes_left_alone_for_one_reason_are_counted(report: r.Report) -> None:
    stage = replace(report.trials[0].stages[0], audit=r.Audit(excluded={f"node{i}": "why" for i in range(9)}))
    text = markdown.render(replace(report, trials=(replace(report.trials[0], stages=(stage,)),)))
    assert "left alone, why: node0, node1, node2, node3, node4 and 4 more\n" in text


def test_reasons_without_end_are_counted(report: r.Report) -> None:
    common, rare = {f"t{i}": "it is common" for i in range(2)}, {f"r{i}": f"rare {i}" for i in range(9)}
    stage = replace(report.trials[0].stages[0], audit=r.Audit(blocked={**rare, **common}))
    lines = markdown.render(replace(report, trials=(replace(report.trials[0], stages=(stage,)),))).splitlines()
    told = [line.strip() for line in lines if "not fused" in line]
    assert told[0] == "- not fused, it is common: t0, t1"
    assert len(told) == 9
    assert told[-1] == "- not fused, for other reasons: 2 more"


def test_every_way_that_was_tried_has_its_row(report: r.Report) -> None:
    header, *rows = _tables(_section(markdown.render(report), "What was tried"))[0]
    assert header == ["rung", "stage", "way", "size", "SQNR", "speed-up", "taken", "why"]
    named = ["int8", "quantize"]
    assert rows == [
        [
            *named,
            "static, core operators",
            "6.4 MB",
            "31.2 dB (exact: 33.5 dB)",
            "1.93 [1.90, 1.96]",
            "yes",
            "the fastest",
        ],
        [*named, "dynamic", "6.5 MB", "35.0 dB", "0.90 [0.88, 0.93]", "no", "not faster than before"],
        [*named, "static, by nncf", "-", "-", "-", "no", "nncf refused the model (KeyError: type)"],
    ]


def test_a_stage_that_rungs_share_is_shown_once(report: r.Report) -> None:
    int8 = report.trials[0]
    text = markdown.render(replace(report, trials=(int8, replace(int8, rung="int8-fused"))))
    for title, rows in {"What was tried": 3, "What the operators take": 3}.items():
        found = _tables(_section(text, title))[0][1:]
        assert [row[0] for row in found] == ["int8, int8-fused"] * rows


def test_where_nothing_was_tried_there_is_no_table_of_it(report: r.Report) -> None:
    bare = replace(report.trials[0].stages[0], tried=(), audit=None)
    text = markdown.render(replace(report, trials=(replace(report.trials[0], stages=(bare,)),)))
    assert "What was tried" not in text
    assert "What the operators take" not in text


def test_operators_stand_with_their_times_before_and_now_and_the_whole(report: r.Report) -> None:
    header, *rows = _tables(_section(markdown.render(report), "What the operators take"))[0]
    assert header == ["rung", "stage", "operator", "nodes", "before", "now", "speed-up"]
    assert [row[2:] for row in rows] == [
        ["Conv", "18", "3 ms", "1.5 ms", "2.00"],
        ["QuantizeLinear", "0", "-", "250 µs", "-"],
        ["all", "18", "3 ms", "1.75 ms", "1.71"],
    ]


def test_nodes_that_became_slower_are_named_the_worst_first(report: r.Report) -> None:
    lost = {f"add{i}": (0.1, 0.9 - i / 10) for i in range(7)}
    stage = replace(report.trials[0].stages[0], audit=r.Audit(operators=(r.OperatorTime("Add", 7, 1, 2),), slower=lost))
    text = markdown.render(replace(report, trials=(replace(report.trials[0], stages=(stage,)),)))
    told = "Slower after quantize (int8): add0 (100 µs → 900 µs), add1 (100 µs → 800 µs), "
    assert told in _section(text, "What the operators take")
    assert "add4 (100 µs → 500 µs) and 2 more." in text


def test_cheap_operators_share_a_row(report: r.Report) -> None:
    times = tuple(r.OperatorTime(f"op{i}", 1, 2.0, 1.0) for i in range(15))
    stage = replace(report.trials[0].stages[0], audit=r.Audit(operators=times))
    text = markdown.render(replace(report, trials=(replace(report.trials[0], stages=(stage,)),)))
    rows = _tables(_section(text, "What the operators take"))[0][1:]
    assert [row[2] for row in rows] == [*(f"op{i}" for i in range(12)), "3 others", "all"]
    assert [row[3:] for row in rows[-2:]] == [["3", "6 ms", "3 ms", "2.00"], ["15", "30 ms", "15 ms", "2.00"]]


def test_a_loss_of_the_kernels_is_said_to_be_the_cpus(report: r.Report) -> None:
    changed = _section(markdown.render(report), "What changed in the outputs")
    told = "- **int8**: top1 is 0.745 here and 0.744 with exact integers: the integer kernels of this CPU saturate"
    assert told in changed


def test_warnings_data_environment_loading_and_recipe_are_there(report: r.Report) -> None:
    text = markdown.render(report)
    assert "- the machine was busy\n" in _section(text, "Warnings")
    assert ["evaluation", "evaluation.npz (n = 40, synthetic, sha256 sha-of-evaluation)"] in _tables(
        _section(text, "Data")
    )[0]
    assert ["versions", "onnxruntime 1.2.3"] in _tables(_section(text, "Environment"))[0]
    assert ["int8/net.onnx", "6.4 MB", "sha-of-int8"] in _tables(_section(text, "How to load it"))[0]
    fences = {token.info: token.content for token in PARSER.parse(text) if token.type == "fence"}
    assert "ort.InferenceSession(" in fences["python"]
    assert fences["yaml"].startswith("version: 1\n")


def test_numbers_of_the_environment_are_rounded(report: r.Report) -> None:
    odd = replace(report, environment=replace(report.environment, load=1.23456789), duration_s=61.54321)
    found = dict(_tables(_section(markdown.render(odd), "Environment"))[0])
    assert (found["load"], found["seconds"], found["threads"]) == ("1.235", "61.5", "2")


def test_a_run_that_measured_little_still_has_a_report(report: r.Report) -> None:
    bare = replace(
        report, verdict="fail", chosen=None, warnings=(), baseline=r.Trial("baseline"), trials=(), registry=None
    )
    text = markdown.render(replace(bare, data=r.Data(None, None, None, None)))
    assert _first_paragraph(bare) == "**Fail:** no candidate meets every gate."
    assert "## Gates" not in text
    assert ["calibration", "none"] in _tables(text)[1]


def _with_everywhere(report: r.Report, text: str) -> r.Report:
    int8, broken = report.trials
    assert int8.measurement
    assert int8.measurement.score
    other = replace(int8.measurement.others[0], at=text, load=text, shape={text: text})
    score = replace(int8.measurement.score, metric=text)
    far = int8.measurement.errors["logits"]
    measured = replace(int8.measurement, others=(other,), errors={text: far}, score=score)
    times = (r.OperatorTime(text, 1, 1.0, 1.0),)
    audit = r.Audit(excluded={text: text}, integer={text: 1}, blocked={text: text}, operators=times)
    tried = (r.Tried({"scheme": text, text: text}, taken=True, why=text), r.Tried({text: text}, taken=False, why=text))
    named = {"stage": text, "did": text, "sqnr_db": {text: 1.0}, "notes": (text,)}
    stage = replace(int8.stages[0], audit=audit, tried=tried, **named)
    verdict = r.Verdict(text, met=False, observed=1.0, limit=2.0, low=None, high=None, reason=text)
    return replace(
        report,
        chosen=text,
        warnings=(text,),
        model=replace(report.model, name=text),
        data=r.Data(r.Source(text, text, 1, synthetic=False), None, {text: text}, text),
        trials=(
            replace(int8, rung=text, stages=(stage,), measurement=measured, verdicts=(verdict,)),
            replace(broken, failure=r.Failure(text, text)),
        ),
        environment=replace(report.environment, machine=text, cpu=text, versions={text: text}),
        recipe={text: text},
    )


def test_names_and_reasons_are_shown_as_they_are_and_not_read_as_markup(report: r.Report) -> None:
    text = markdown.render(_with_everywhere(report, HARMFUL))
    shown = " ".join(HARMFUL.split())
    rungs, gates = _tables(text)[:2]
    assert rungs[2][0] == f"{shown} (chosen)"
    assert gates[2] == [shown, shown, "not met", "1", "2", shown]
    assert not _kinds(text) & {"html_inline", "link_open", "code_inline", "em_open", "s_open"}
    assert all(len({len(row) for row in table}) == 1 for table in _tables(text))


@given(text=st.text(st.sampled_from("`|<>&*_[]()#~\\$\n ab1.-+="), min_size=1, max_size=20))
def test_any_text_keeps_the_tables_whole(text: str) -> None:
    cell = markup.text(text)
    ((_, row),) = _tables(f"| a | b |\n| --- | --- |\n| {cell} | end |")
    assert row == [" ".join(text.split()), "end"]


@pytest.mark.parametrize("content", ["a\n```\nb", "a\n````\nb", "</details>"])
def test_a_recipe_stays_within_its_block(report: r.Report, content: str) -> None:
    tokens = PARSER.parse(markdown.render(replace(report, recipe={"x": content})))
    assert [token.content for token in tokens if token.type == "html_block"][-1] == "</details>\n"
    (recipe,) = [token.content for token in tokens if token.type == "fence" and token.info == "yaml"]
    assert yaml.safe_load(recipe) == {"x": content}
