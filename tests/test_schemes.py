"""Which INT8 form goes with which machine."""

from __future__ import annotations

import pytest

from compressor import schemes


@pytest.mark.parametrize(
    ("isa", "name"),
    [
        ((), "generic"),
        (("avx", "avx2", "fma"), "x86-avx2"),
        (("avx2", "avx512f"), "x86-avx512"),
        (("avx2", "avx_vnni"), "x86-vnni"),
        (("avx2", "avx512f", "avx512_vnni"), "x86-vnni"),
        (("avx2", "avx512f", "avx512_vnni", "amx_int8", "amx_bf16"), "x86-amx"),
        (("asimd", "asimddp"), "arm-dotprod"),
        (("asimd", "asimddp", "i8mm", "bf16"), "arm-i8mm"),
    ],
)
def test_a_cpu_has_the_scheme_of_the_newest_instructions_that_it_has(isa: tuple[str, ...], name: str) -> None:
    assert schemes.of(isa).name == name


def test_what_the_probe_found_on_this_machine_counts_and_not_what_the_table_expects() -> None:
    here = schemes.settled("auto", ("avx2",), saturates=False)
    assert (here.name, here.saturates, here.here) == ("x86-avx2", False, True)
    assert schemes.settled("x86-avx2", ("avx2",), saturates=True).here


def test_another_machine_is_described_by_the_table() -> None:
    there = schemes.settled("x86-avx2", ("avx512_vnni",), saturates=False)
    assert (there.name, there.saturates, there.here) == ("x86-avx2", True, False)


def test_an_unknown_target_has_no_scheme() -> None:
    assert schemes.by_name("x86-avx3") is None
    with pytest.raises(ValueError, match="x86-avx3"):
        schemes.settled("x86-avx3", (), saturates=False)


def test_each_row_has_a_name_of_its_own_and_a_source() -> None:
    names = [scheme.name for scheme in schemes.SCHEMES]
    assert len(set(names)) == len(names)
    assert all(scheme.source for scheme in schemes.SCHEMES)
    assert not any(scheme.here for scheme in schemes.SCHEMES)


def test_what_tensorrt_reads_has_no_zero_points() -> None:
    row = schemes.by_name("tensorrt")
    assert row is not None
    assert (row.activations, row.symmetric, row.engine) == ("s8", True, "tensorrt")
