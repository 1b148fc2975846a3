"""How long a release takes, by a trial."""

from __future__ import annotations

from privsyn.methods.base import Work
from privsyn.stages import duration


def test_a_trial_is_of_half_as_many_as_a_release_does_together(monkeypatch):
    now, done = [0.0], []

    def do(number):
        done.append(number)
        now[0] += 1 + number / 64

    monkeypatch.setattr(duration.time, "monotonic", lambda: now[0])
    assert duration._seconds(Work("texts", 100, do)) == 1.5 / 32
    assert done == [1, 32]
