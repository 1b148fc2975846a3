"""Accuracy in context, asked for in the settings: the shipped model reads to the end."""

from __future__ import annotations

import json

from privsyn.data.records import Record
from privsyn.stages import measure
from privsyn.stages.plan import plan

LABELS = ("Billing", "Symptoms")


def text(side, number):
    return f"{side} note {number} about {LABELS[number % 2].lower()}"


def test_eight_records_are_read_with_examples_of_every_source(make_project, tmp_path, monkeypatch):
    ctx = make_project().context(
        "models.language=tiny",
        f"dataset.labels={json.dumps(LABELS)}",
        "evaluate.embeddings=false",
        "evaluate.perplexity_texts=0",
        "evaluate.in_context_records=8",
        "evaluate.in_context_shots=6",
        "evaluate.in_context_calibrated=true",
    )
    planned = plan(ctx, "invisible_ink", open_account=True)
    monkeypatch.setattr(measure, "public_alone", lambda ctx, plan, names, *_: list(names))
    artifact = tmp_path / "synthetic.jsonl"
    rows = [{"id": str(i), "label": LABELS[i % 2], "text": text("made", i)} for i in range(20)]
    artifact.write_text("".join(json.dumps(row) + "\n" for row in rows))
    real = [Record(str(i), LABELS[i % 2], text("real", i)) for i in range(60)]
    metrics, _ = measure.beside(ctx, planned, artifact, real, None, measure.Failures())
    found = {metric.name: metric for metric in metrics if metric.name.startswith("in_context.")}
    assert set(found) == {
        f"in_context.{name}"
        for name in ("synthetic", "real", "public", "low", "high", "chance", "records")
    }
    assert found["in_context.records"].value == 8
    assert found["in_context.synthetic"].note.startswith("accuracy with synthetic examples: 6 ")
    assert found["in_context.synthetic"].note.endswith("calibrated")
    assert {metric.cls for metric in found.values()} == {"internal"}
    assert not any("note" in metric.note and "about" in metric.note for metric in found.values())
