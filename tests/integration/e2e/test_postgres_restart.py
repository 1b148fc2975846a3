"""A release is made while the ledger's PostgreSQL restarts, is away, or breaks commits off."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import time
from datetime import timedelta

import pytest

from privsyn.data.artifacts import write_json_atomic
from privsyn.data.journal import parse_line
from privsyn.errors import LedgerUnavailable
from privsyn.ledger.ledger import Ledger
from privsyn.report import verification
from privsyn.stages.certify import certify
from privsyn.stages.partition import partition
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from privsyn.vault import VARIABLE
from tests import preloaded
from tests.integration.e2e.small_project import (
    CANARY,
    METHODS,
    environment,
    finish,
    reserve_release,
    rows,
)
from tests.integration.ledger.postgres_server import postgres_server, severed

PART = "shard-0"
TOKENS = 64
PATIENCE = 300.0
"""Seconds after which a process hangs."""


@pytest.fixture
def server():
    with postgres_server() as running:
        yield running


@pytest.fixture
def project(server, make_project, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, base64.b64encode(bytes(range(32))).decode())
    made = make_project(
        methods={"invisible_ink": METHODS["invisible_ink"] | {"max_tokens": TOKENS}},
        services={"ledger": server.url, "vault": f"file://{tmp_path / 'vault'}"},
        performance={"shards": 1},
    )
    made.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
    return made


class Drawing:
    """A process that draws the shard, and what it says."""

    def __init__(self, project, said):
        self._said = said
        command = [preloaded.python(), "-m", "privsyn", "stage", "generate", "--plan", "plan.json"]
        with said.open("wb") as stream:
            self.process = subprocess.Popen(
                [*command, "--shard", "0"],
                cwd=project.root,
                stdout=stream,
                stderr=stream,
                env=environment(project),
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def until(self, there):
        deadline = time.monotonic() + PATIENCE
        while not there():
            assert self.process.poll() is None, self._said.read_text()[-2000:]
            assert time.monotonic() < deadline, "it hangs"
            time.sleep(0.02)

    def end(self):
        code = self.process.wait(PATIENCE)
        said = self._said.read_text()
        assert CANARY not in said
        assert "Traceback" not in said
        return code, said


@pytest.mark.slow
def test_a_restart_in_mid_draw_costs_no_draw_that_is_on_file(server, project, tmp_path):
    ctx = project.context()
    planned = reserve_release(ctx)
    assert partition(ctx, planned) == 1
    write_json_atomic(project.root / "plan.json", planned.model_dump(mode="json"))
    spent = ctx.ledger.accounts.balance("letters").spent

    def on_file():
        return ctx.ledger.draws.rows(planned.id, PART)

    def cut_off(more, fault):
        """Draw until there are so many rows more, then the fault: the rows of just before it."""
        had = len(on_file())
        seen = []

        def enough():
            seen[:] = on_file()
            return len(seen) >= had + more

        with Drawing(project, tmp_path / "said") as drawing:
            drawing.until(enough)
            fault()
            code, said = drawing.end()
        assert code == LedgerUnavailable.exit_code, said
        *_, last = said.splitlines()
        assert re.match("privsyn: ledger postgresql://.* cannot be used: ", last), said
        return seen

    before = cut_off(8, server.restart)
    first = on_file()
    assert first[: len(before)] == before  # what one process saw on file, a crash leaves there

    before = cut_off(40, server.stop)
    with pytest.raises(LedgerUnavailable) as refused:
        on_file()
    assert refused.value.retryable
    server.start()
    second = on_file()
    assert before[: len(first)] == first
    assert second[: len(before)] == before
    entry = ctx.ledger.releases.get(planned.id)
    assert entry.state == "BEGUN"

    with Drawing(project, tmp_path / "said") as drawing:
        code, said = drawing.end()
    assert code == 0, said
    whole = on_file()
    assert len(whole) > len(second)
    assert whole[: len(second)] == second
    keys = keys_of(ctx, planned, whole)
    assert len(set(keys)) == len(keys)  # nothing twice

    folder = certify(project.context(), planned)
    assert settle(ctx, planned) == "COMMITTED"
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    ctx.ledger.verify()
    [entry] = ctx.ledger.releases.all()
    assert (entry.release_id, dict(entry.event)) == (planned.id, planned.event)
    assert ctx.ledger.accounts.balance("letters").spent == spent
    assert on_file() == []


@pytest.mark.slow
def test_any_commit_may_be_lost_or_its_answer(postgres_url, make_project, fake):
    """A run for each commit of a release, at which its connection breaks off."""
    runs = commits = 0

    def fault():
        nonlocal commits
        commits += 1
        return ("before", "after")[runs % 2] if commits == runs else None

    with severed(postgres_url, fault) as url:
        project = make_project(services={"ledger": url}, evaluate={"by": "nothing"})

        def run():
            ctx = project.context()
            day = ctx.clock()
            ctx.clock = lambda: day + timedelta(minutes=2 * runs)  # leases have run out
            planned = reserve_release(ctx)
            finish(ctx, planned, fake)
            folder = validate(ctx, planned)
            settle(ctx, planned)
            return folder

        while not commits or commits >= runs:
            runs, commits = runs + 1, 0
            try:
                folder = run()
            except LedgerUnavailable as away:
                said = str(away)
                assert "cannot be used: consuming input failed: server closed" in said
    assert runs > 20
    ledger = Ledger(postgres_url)
    ledger.verify()
    [entry] = ledger.releases.all()
    assert (entry.state, entry.release_id) == ("COMMITTED", folder.name)
    assert all(check.passed is not False for check in verification.verify(folder, ledger))
    changes = [row.change for row in ledger.history()]
    assert [changes.count(once) for once in ("RESERVED", "BEGUN", "COMMITTED")] == [1, 1, 1]
    assert project.context().workspace.scratches() == []


def test_a_server_that_falls_silent_is_given_up_in_a_minute(postgres_url):
    """A balancer drops an idle connection without a word; the system's default is hours."""
    for more, wanted in (("", [20, 10, 3, 60_000]), ("&keepalives_idle=70", [70, 10, 3, 60_000])):
        with Ledger(postgres_url + more).database._engine.connect() as connection:
            with socket.socket(fileno=os.dup(connection.connection.fileno())) as own:
                assert wanted == [own.getsockopt(socket.IPPROTO_TCP, name) for name in KEEPALIVE]


KEEPALIVE = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)


def keys_of(ctx, planned, sealed):
    """Names of the draws in a part's rows, each found whole and in its place."""
    assert ctx.vault is not None
    vault = ctx.vault.find(ctx.ledger.draws, planned.id)
    assert vault is not None
    keys, crc = [], 0
    for number, body in enumerate(sealed):
        line = vault.key.open_entry(PART, number, body)
        value, crc = parse_line(PART, number + 1, line, crc)
        if number:
            keys.append(str(value["k"]))
    return keys
