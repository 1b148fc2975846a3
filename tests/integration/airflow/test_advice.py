"""Where Airflow shows what epsilon and delta mean."""

from __future__ import annotations

import json

import pytest

from privsyn.config import parse_config
from tests.unit.release.test_advice import project


@pytest.mark.airflow
def test_the_form_and_the_dag_s_page_say_them(tmp_path, monkeypatch):
    from privsyn.airflow.factory import method_dag
    from privsyn.airflow.params import form

    params = project(tmp_path, account={"public_size": 400})
    config = parse_config(json.loads(params.read_text()))
    shown = form(config, "invisible_ink")
    assert "1 is strong, 10 weak, 40 none" in shown["privacy.epsilon"].description
    assert "Below 0.00025" in shown["privacy.delta"].description
    assert shown["privacy.epsilon"].schema["maximum"] == config.account.epsilon
    assert shown["privacy.epsilon"].resolve() == 20
    monkeypatch.setenv("PRIVSYN_PARAMS", str(params))
    page = " ".join(method_dag("invisible_ink").doc_md.split())
    assert "by the factor e^epsilon, plus delta, with epsilon 20 and delta 0.001" in page
    assert "is weak protection" in page
    assert "next to nothing" not in page


@pytest.mark.airflow
@pytest.mark.parametrize("unit", ["unit", None])
def test_plan_form_and_page_say_that_rows_are_protected_where_nobody_is_named(
    tmp_path, monkeypatch, unit
):
    from privsyn.airflow.factory import method_dag
    from privsyn.airflow.params import form
    from privsyn.display.plans import guarantee_text
    from privsyn.stages.base import open_context
    from privsyn.stages.plan import plan

    data = {"name": "d", "path": "private.jsonl", "unit": unit}
    kind = {"adjacency": "replace_null", "unit": "record"} if unit is None else {}
    params = project(tmp_path, dataset=data, account=kind)
    planned = plan(open_context(params), "invisible_ink")
    shown = form(parse_config(json.loads(params.read_text())), "invisible_ink")
    monkeypatch.setenv("PRIVSYN_PARAMS", str(params))
    for told in (
        " ".join(planned.warnings),
        guarantee_text(planned),
        shown["privacy.epsilon"].description,
        " ".join(method_dag("invisible_ink").doc_md.split()),
    ):
        assert ("rows, not people, are protected" in told) == (unit is None), told


@pytest.mark.airflow
def test_the_dag_s_page_gives_the_advice_that_needs_no_plan(tmp_path, monkeypatch):
    from privsyn.airflow.factory import method_dag

    data = {"name": "d", "path": "private.jsonl", "unit": "unit", "max_records_per_unit": 12}
    data |= {"label": "label", "labels": ["A", "B"]}
    params = project(tmp_path, dataset=data, account={"epsilon": 10}, models={"language": "tiny"})
    monkeypatch.setenv("PRIVSYN_PARAMS", str(params))
    page = " ".join(method_dag("invisible_ink").doc_md.split())
    assert "dataset.document is not set" in page
    assert "models.language=tiny is there to try things" in page
    assert "privacy.epsilon=20 is above account.epsilon=10" in page
    assert "dataset.max_records_per_unit=12 hides a patient with 12 records" in page
    assert "as many of each of 2 labels, whatever their shares in the records" in page
