"""What the machine is made for."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from privsyn.models.settings import ModelsConfig
from privsyn.models.torch_runtime import made_for_bfloat16, warn_if_slow


@pytest.mark.parametrize(
    ("flags", "made"),
    [
        ("flags : avx512f avx512_bf16", True),
        ("flags : amx_bf16 amx_tile", True),
        ("Features : fp asimd bf16", True),
        ("flags : avx2 f16c", False),
        (None, None),
    ],
)
def test_a_cpu_says_whether_it_is_made_for_bfloat16(flags, made, tmp_path):
    cpu = tmp_path / "cpuinfo"
    if flags:
        cpu.write_text(f"processor : 0\n{flags}\n")
    assert made_for_bfloat16(cpu) is made


@pytest.mark.parametrize(
    ("dtype", "device", "made", "told"),
    [
        ("bfloat16", "cpu", False, True),
        ("bfloat16", "cpu", True, False),
        ("bfloat16", "cpu", None, False),
        ("bfloat16", "cuda", False, False),
        ("float32", "cpu", False, False),
    ],
)
def test_bfloat16_that_a_cpu_has_to_mimic_is_warned_of(dtype, device, made, told, caplog):
    with caplog.at_level(logging.WARNING):
        warn_if_slow(ModelsConfig(dtype=dtype), SimpleNamespace(type=device), made)
    assert [record.getMessage()[:23] for record in caplog.records] == [
        "models.dtype=bfloat16: "
    ] * told
