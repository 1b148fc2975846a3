"""Which processes `make up` started, however far they have gone since."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

TOKEN = "PRIVSYN_SERVICES"  # noqa: S105


@dataclass(frozen=True)
class Running:
    """What ``up`` started.

    Attributes:
        token: In the environment of every process. A process that sets its title may overwrite
            what the system shows of its environment, so the token alone does not find all.
        ports: Port by name of the server.
        sessions: Id of each server's session, and the time its first process started. Those of
            servers that are gone stay: what they started may live on.
        parts: The session of each server that was started last, by name.
    """

    token: str
    ports: dict[str, int]
    sessions: dict[str, float] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, home: Path) -> Running | None:
        """What the last ``up`` in this home started; None after ``down``."""
        try:
            return cls(**json.loads(_state(home).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def save(self, home: Path) -> None:
        """Remember it for ``down``."""
        _state(home).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    def forget(self, home: Path) -> None:
        """All of it has ended."""
        _state(home).unlink(missing_ok=True)

    def add(self, part: str, leader: int) -> None:
        """A server was started, in a session that its first process leads."""
        self.sessions[str(leader)] = psutil.Process(leader).create_time()
        self.parts[part] = leader

    def alive(self, part: str) -> bool:
        """Whether the first process of a server lives."""
        leader = self.parts.get(part)
        if leader is None:
            return False
        try:
            process = psutil.Process(leader)
            zombie = process.status() == psutil.STATUS_ZOMBIE
            return not zombie and bool(process.create_time() == self.sessions[str(leader)])
        except psutil.Error:
            return False

    def left_by(self, part: str) -> list[psutil.Process]:
        """Processes that a server left in its session."""
        session = self.parts.get(part)
        found = []
        for process in self.processes():
            try:
                if os.getsid(process.pid) == session:
                    found.append(process)
            except OSError:
                continue
        return found

    def processes(self) -> list[psutil.Process]:
        """Every live process of ours, wherever it was reparented to."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.environ().get(TOKEN) == self.token:
                return True
            session = os.getsid(process.pid)
            started = self.sessions.get(str(session))
            # A leader of another age is a stranger that was given the same number.
            return started is not None and (
                not psutil.pid_exists(session) or psutil.Process(session).create_time() == started
            )
        except (psutil.Error, OSError):
            return False  # ended meanwhile, or another user's


def _state(home: Path) -> Path:
    return home / "services.json"
