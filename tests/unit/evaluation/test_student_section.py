"""The section on students: every number beside what it is compared with, or why there is none."""

from privsyn.evaluation.report import StudentMetrics, student_section
from privsyn.report.document import STAYS

ID = "dp_lora-00ff"
WHOLE = {
    "student.next_token_accuracy": 0.3,
    "student.next_token_accuracy_low": 0.25,
    "student.next_token_accuracy_high": 0.35,
    "student.commonest_token": 0.05,
    "student.cross_entropy": 4.0,
    "public.next_token_accuracy": 0.4,
}


def one(number=1, **changes):
    values = {name: value for name, value in (WHOLE | changes).items() if value is not None}
    return StudentMetrics(f"{ID}.student-0000000{number}", 4_400_000, values)


def items(found, kind):
    return [item for block in found.blocks if block.kind in kind for item in block.items]


def test_a_student_stands_beside_its_baselines_with_its_interval():
    found = student_section([one()], ID)
    assert (found.cls, found.grade, items(found, "missing")) == (STAYS, "fair", [])
    bars = {bar.name: (bar.value, bar.low, bar.high, bar.ours) for bar in items(found, "bars")}
    assert bars == {
        "this release": (0.3, 0.25, 0.35, True),
        "commonest token": (0.05, None, None, False),
        "public model alone": (0.4, None, None, False),
    }
    assert "0.300 of next tokens right, not shown to be more than the public" in found.advice
