"""The accuracy that a release pays for: drawn once, when its records are final."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from privsyn.data.partition import held_units
from privsyn.errors import ReleaseLost
from privsyn.release.certificate import accuracy_figures
from privsyn.release.workdir import ACCURACY, HELD_OUT, PARTITION, Workdir
from privsyn.stages.base import OpenPlan
from privsyn.stages.draw import begun, session

Answer = Callable[[str], str]
"""The label a classifier gives a record's content."""
_DRAW = "right and wrong"


def draw_accuracy(
    release: OpenPlan, artifact: Path, work: Workdir
) -> tuple[str, dict[str, Any]] | None:
    """Draw the accuracy of a classifier trained on the release, on units held out of it.

    Guarantee: plan.accuracy, which is in the release's event. The classifier is a function of the
    release alone; a record's answer is one of the classifier and that record.

    The draw is in a journal of its own before anybody sees it, so that a killed run draws no second
    one. Records are read where it is not there yet.

    Args:
        release: The release; begun, and all of it drawn.
        artifact: Its records, as they will be published.
        work: Its private intermediates.

    Returns:
        Kind of the noise source, and the certificate's figures; None where it pays for none.

    Raises:
        ReleaseLost: The release is not one that may be drawn from.
        LeaseHeld: Another process draws it.
    """
    ctx, plan = release.ctx, release.plan
    mechanism = plan.accuracy
    if mechanism is None:
        return None
    if begun(ctx, release) is None:
        raise ReleaseLost(f"release {plan.id} is committed: nothing more may be drawn for it.")
    file = work.folder / HELD_OUT
    with session(release, ACCURACY, work) as part:
        lease, journal, noise = part.lease, part.journal, part.noise
        if not journal.has(_DRAW):
            work.bring(PARTITION, HELD_OUT)
        # Before the draw begins, since an exception within it would lose the release.
        answers = [] if journal.has(_DRAW) else list(_answers(release, artifact, file))
        lease.check()
        drawn = journal.draw_array(_DRAW, lambda: mechanism.draw(answers, noise), 2)
        ctx.ledger.leases.renew(lease)  # counted before it is handed on
        right, wrong = map(int, drawn)
        return noise.kind, accuracy_figures(mechanism, right, wrong)


def _answers(release: OpenPlan, artifact: Path, file: Path) -> Iterator[list[bool]]:
    """Of each held-out unit, whether each of its records is answered right."""
    answer = release.modality.classifier(artifact)
    for unit in held_units(file, release.plan.max_records_per_unit):
        yield [_is_right(answer, record.content, record.label) for record in unit.reveal()]


def _is_right(answer: Answer, content: str, label: str | None) -> bool:
    """Whether one record is answered right, whatever is in it: one that raises is answered wrong.

    privacy: a record that could end the run would decide whether there is a release.
    """
    try:
        # privacy: a record that a classifier cannot read counts as wrong; it must not stop the run.
        return answer(content) == label
    except MemoryError:
        raise
    except Exception:
        return False
