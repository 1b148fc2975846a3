"""A release by SmolLM2 itself, as the default settings have it: planned, drawn, verified."""

from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import METHODS, build_project, finish


def test_a_release_by_smollm2(tmp_path, smollm2):
    """Reading the model probes that its rows are independent on this machine."""
    project = build_project(
        tmp_path / "project",
        models={"language": "smollm2"},
        methods={"invisible_ink": METHODS["invisible_ink"] | {"texts_per_label": 1}},
    )
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    assert planned.models["language"].source == "smollm2"
    reserve(ctx, planned)
    folder = finish(ctx, planned, None)
    _, sealed = certificate.read(folder)
    assert sealed["plan"]["models"]["language"]["source"] == "smollm2"
    verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
