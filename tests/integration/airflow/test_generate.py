"""The process of a shard: its words, its errors, and that it ends with its task."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

pytestmark = pytest.mark.airflow


@pytest.fixture
def operator():
    from privsyn.airflow.generate import GenerateShardOperator

    return GenerateShardOperator(task_id="generate", shard=0)


@pytest.fixture
def run(operator, monkeypatch):
    """Runs code in place of the command line, in the operator's child."""

    def run(code, environment=None):
        monkeypatch.setattr("privsyn.airflow.generate.COMMAND_LINE", code)
        operator.run_child(environment or {})

    return run


@pytest.fixture
def failure(run):
    from privsyn.airflow.failures import StageFailed

    def failure(code):
        with pytest.raises(StageFailed) as caught:
            run(code)
        return caught.value

    return failure


def report(kind, code):
    line = json.dumps({"error": kind, "message": "no.", "hint": "Wait."})
    return f"import sys; print({line!r}, file=sys.stderr); sys.exit({code})"


def gone(pid):
    """Whether a process has ended, within ten seconds."""
    for _ in range(200):
        with suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


def test_its_lines_are_the_tasks_log(run, caplog):
    with caplog.at_level(logging.INFO):
        run("import sys; print('1 of 2'); print('2 of 2', file=sys.stderr)")
    assert {"1 of 2", "2 of 2"} <= set(caplog.messages)


def test_it_gets_the_origin_and_no_debug_switch(run, caplog, monkeypatch):
    monkeypatch.setenv("PRIVSYN_DEBUG", "1")
    code = "import os; print(os.environ.get('PRIVSYN_DEBUG'), os.environ['PRIVSYN_ORIGIN'])"
    with caplog.at_level(logging.INFO):
        run(code, {"PRIVSYN_ORIGIN": "{}"})
    assert "None {}" in caplog.messages


@pytest.mark.parametrize(
    ("kind", "code", "final"),
    [
        ("LeaseHeld", 3, False),
        ("LedgerUnavailable", 3, False),
        ("StorageError", 2, False),
        ("ReleaseLost", 3, True),
        ("ConfigError", 2, True),
        ("VerificationError", 4, True),
    ],
)
def test_its_error_keeps_its_class(failure, kind, code, final, caplog):
    with caplog.at_level(logging.INFO):
        raised = failure(report(kind, code))
    assert raised.final is final
    assert raised.text == f"{kind}: no. Wait."
    assert "{" not in caplog.text


def test_the_real_command_line_reports_its_error_to_the_task(operator, tmp_path):
    from privsyn.airflow.failures import StageFailed

    command = ["stage", "generate", "--shard", "0", "--plan", f"{tmp_path}/none"]
    with pytest.raises(StageFailed) as caught:
        operator.run_child({"PRIVSYN_ORIGIN": "{}"}, *command)
    assert re.match(r"ConfigError: plan file .* does not exist", caught.value.text)
    assert caught.value.final


def test_a_defect_and_a_kill_are_retried_and_a_usage_error_is_not(failure):
    defect = failure("import sys; sys.exit(1)")
    killed = failure("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    usage = failure("import sys; sys.exit(2)")
    assert (defect.final, defect.killed) == (False, False)
    assert (killed.final, killed.killed) == (False, True)
    assert "SIGKILL" in str(killed)
    assert "no further cost" in str(killed)
    assert usage.final


def test_on_kill_ends_it_and_what_it_started(operator, failure, caplog):
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(60)']); print('grandchild', p.pid, flush=True); time.sleep(60)"
    )

    def stop():
        while not any(message.startswith("grandchild") for message in caplog.messages):
            time.sleep(0.05)
        operator.on_kill()

    with caplog.at_level(logging.INFO):
        thread = threading.Thread(target=stop)
        thread.start()
        assert "SIGKILL" in str(failure(code))
        thread.join()
    pid = next(m.split()[1] for m in caplog.messages if m.startswith("grandchild"))
    assert gone(pid)


def test_it_ends_with_its_execution_timeout(run, caplog):
    from airflow.sdk.exceptions import AirflowTaskTimeout
    from airflow.sdk.execution_time.timeout import timeout

    code = "import os, time; print('child', os.getpid(), flush=True); time.sleep(60)"
    with caplog.at_level(logging.INFO), pytest.raises(AirflowTaskTimeout), timeout(2):
        run(code)
    (pid,) = (m.split()[1] for m in caplog.messages if m.startswith("child"))
    assert gone(pid)


def test_it_dies_with_a_task_that_is_killed(tmp_path):
    """SIGKILL of the task's process: nothing of ours can run any more, only the kernel."""
    file = tmp_path / "pid"
    drawing = (
        "from privsyn.cli.commands import die_with_task; die_with_task(); "
        f"import os, pathlib, time; p = pathlib.Path({str(file)!r}); "
        "p.with_suffix('.new').write_text(str(os.getpid())); p.with_suffix('.new').rename(p); "
        "time.sleep(60)"
    )
    code = (
        "from privsyn.airflow import generate\n"
        f"generate.COMMAND_LINE = {drawing!r}\n"
        "generate.GenerateShardOperator(task_id='generate').run_child({})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ) as task:
        while not file.exists():
            assert task.poll() is None
            time.sleep(0.05)
        os.kill(task.pid, signal.SIGKILL)
    assert gone(file.read_text())


def test_the_command_line_binds_itself_to_the_task(monkeypatch):
    from privsyn.cli import commands

    heard = []
    monkeypatch.setattr(commands, "die_with_task", lambda: heard.append("bound"))
    monkeypatch.setattr(commands, "app", lambda **_: heard.append("run"))
    with pytest.raises(SystemExit):
        commands.main()
    assert heard == ["bound", "run"]


def test_a_child_whose_parent_is_gone_already_does_not_start():
    done = subprocess.run(
        [sys.executable, "-m", "privsyn", "--version"],
        env=os.environ | {"PRIVSYN_TASK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_a_child_sees_the_card_it_has_for_itself(operator, run, monkeypatch, tmp_path, caplog):
    from privsyn.airflow.publish import DistillOperator
    from privsyn.models import gpus

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(gpus, "card_locks", lambda: tmp_path)
    other = DistillOperator(task_id="distill")
    code = "import os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])"
    with caplog.at_level(logging.INFO), other._cards(), operator._cards() as mine:
        run(code, mine)
    assert "sees 7" in caplog.messages
