"""How processes that train together start and end, and what torchrun says of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from privsyn.errors import ConfigError, ModelError, TrainingInterrupted
from privsyn.models.settings import PerformanceConfig
from privsyn.models.training import multi_gpu, processes
from privsyn.models.training.multi_gpu import Group
from privsyn.models.training.processes import (
    Rank,
    by_hand,
    check_one_machine,
    start_group,
)

PERFORMANCE = PerformanceConfig(device="cpu", threads=1, processes=2)
PATIENCE = timedelta(seconds=300)


@pytest.fixture
def children(monkeypatch):
    """The processes that are started."""
    found = []
    start = processes._start
    monkeypatch.setattr(processes, "_start", lambda *x: (found.append(start(*x)), found[-1])[1])
    return found


def test_a_process_that_is_killed_interrupts_the_training(children):
    with start_group(PERFORMANCE, PATIENCE) as group:
        children[0].kill()
        with pytest.raises(TrainingInterrupted, match="rank 1 is gone") as raised:
            group.answers()
    assert raised.value.retryable
    assert children[0].returncode == -signal.SIGKILL


def test_a_process_that_hangs_is_waited_for_so_long_and_ended(children, monkeypatch):
    monkeypatch.setattr(processes, "_GRACE", 0.5)
    with start_group(PERFORMANCE, timedelta(seconds=2)) as group:
        children[0].send_signal(signal.SIGSTOP)
        with pytest.raises(TrainingInterrupted, match="rank 1 did not answer in time"):
            group.answers()
    assert children[0].returncode == -signal.SIGKILL


def test_a_process_that_does_not_start_is_named(monkeypatch):
    monkeypatch.setattr(
        processes,
        "_start",
        lambda *_: subprocess.Popen(
            [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ),
    )
    threads = torch.get_num_threads()
    with pytest.raises(TrainingInterrupted, match="rank 1 did not start"):
        with start_group(PERFORMANCE, PATIENCE):
            raise AssertionError("nobody is there")
    assert torch.get_num_threads() == threads


def test_the_others_end_with_rank_zero_however_it_ends(tmp_path):
    """The others hold the same stderr: it ends when the last of them has."""
    script = Path(__file__).with_name("rank_zero.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(script.parents[3]), "TMPDIR": str(tmp_path)},
    ) as leader:
        assert leader.stdout.readline() == "up\n"
        leader.kill()
        _, said = leader.communicate(timeout=300)
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, None),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Rank(0, 2, 0, 0)),
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"},
            Rank(5, 8, 1, 4),
        ),
    ],
)
def test_torchrun_says_the_place(monkeypatch, variables, expected):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert by_hand() == expected


def test_variables_that_are_no_numbers_are_refused(monkeypatch):
    for name, value in {"RANK": "first", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="RANK=first"):
        by_hand()


@pytest.mark.parametrize("local_size", [0, 1, 3])
def test_several_machines_are_refused(local_size):
    place = Rank(0, 4, 0, local_size)
    with pytest.raises(ConfigError, match=f"{local_size} of them .* unencrypted"):
        check_one_machine(place)
    check_one_machine(Rank(0, 4, 0, 4))


def test_gpus_add_only_where_each_process_has_its_own(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    assert Group.use_cards(["a/0", "a/1", "b/0"])
    assert not Group.use_cards(["a/0", "a/0"])
    assert not Group.use_cards(["a/0", None])


def test_a_process_takes_the_gpu_of_its_number(monkeypatch):
    class Stub:
        place = Rank(3, 4, 1, 2)

    assert multi_gpu._device("cpu", Stub()) == torch.device("cpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert multi_gpu._device("auto", Stub()) == torch.device("cuda:1")
    assert multi_gpu._device("cuda", Stub()) == torch.device("cuda:1")
    assert multi_gpu._device("cuda:0", Stub()) == torch.device("cuda:0")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ModelError, match="1 GPUs"):
        multi_gpu._device("auto", Stub())
