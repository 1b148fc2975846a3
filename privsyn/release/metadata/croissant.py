"""A release of records as a Croissant 1.1 description with its RAI fields (both of MLCommons)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from privsyn.release.layout import ARTIFACT, CERTIFICATE, IMAGE_ROWS, IMAGES, MODEL_ROWS
from privsyn.release.metadata.facts import UNSTATED, Facts, one_line
from privsyn.release.plan import Plan
from privsyn.release.warnings import RESEMBLANCE

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "conformsTo": "dct:conformsTo",
    **{
        name: f"cr:{name}"
        for name in (
            *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract"),
            *("field", "fileProperty", "fileObject", "fileSet", "format", "includes", "isArray"),
            *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
            *("references", "regex", "repeated", "replace", "samplingRate", "separator", "source"),
            *("subField", "transform"),
        )
    },
}
"""As the specification of Croissant 1.1 gives it."""

CONFORMS = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
JSON_LINES = "application/jsonlines"


def croissant(facts: Facts) -> dict[str, Any] | None:
    """The description; None of a release that is a model."""
    if facts.model:
        return None
    facts = replace(facts, words=one_line)
    plan, stated, sealed = facts.plan, facts.deployment, facts.sealed
    method, unit = facts.words(facts.paid["method"]["title"]), facts.unit
    images = sealed["artifact"]["media_type"] == IMAGE_ROWS
    columns = columns_of(plan, sealed)
    distribution: list[dict[str, Any]] = [
        _file(ARTIFACT, JSON_LINES, sealed["artifact"]["sha256"], "The records, one a line"),
        _file(
            CERTIFICATE,
            "application/json",
            facts.certificate_sha256,
            "What was spent on the records, and how to check it",
        ),
    ]
    if images:
        distribution.append(
            {
                "@type": "cr:FileSet",
                "@id": IMAGES,
                "name": IMAGES,
                "description": "The pictures that the records name",
                "encodingFormat": "image/png",
                "includes": f"{IMAGES}/*.png",
            }
        )
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS,
        "name": facts.title,
        "description": facts.description,
        "version": f"1.0.{plan.draw}",
        "datePublished": facts.published,
        "license": stated.license or UNSTATED,
        "url": stated.url or f"urn:privsyn:release:{facts.name}",
        "creator": [
            {"@type": "sc:Organization", "name": name} for name in stated.curators or (UNSTATED,)
        ],
        "citeAs": f"{facts.title}, release {facts.name}, certificate {facts.certificate_sha256}",
        "keywords": ["synthetic data", "differential privacy", facts.numbers],
        "isLiveDataset": False,
        "distribution": distribution,
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "records",
                "name": "records",
                "description": f"{sealed['artifact']['rows']} synthetic {facts.things}",
                "key": {"@id": "records/id"},
                "field": [_field(name, said) for name, said in columns.items()],
            }
        ],
        "rai:dataCollection": f"Drawn by {method} from private records under differential "
        f"privacy. {RESEMBLANCE.format(unit=unit)}",
        "rai:dataCollectionType": ["Others"],
        "rai:dataPreprocessingProtocol": [
            f"At most {plan.max_records_per_unit} records of each {unit} are used; what cannot be "
            "read is dropped, each record by itself."
        ],
        "rai:dataManipulationProtocol": "Writing the drawn records as files; checks of their form.",
        "rai:machineAnnotationTools": [
            f"{role}: {facts.words(use.source)}" for role, use in plan.models.items()
        ],
        "rai:personalSensitiveInformation": [f"{facts.numbers}. {facts.guarantee}"],
        "rai:dataUseCases": [stated.intended_use or UNSTATED],
        "rai:dataLimitations": [
            "It follows the private records in the large: rare groups and exact counts cannot be "
            "relied on."
        ],
        "rai:dataBiases": [
            f"{stated.biases or UNSTATED} Biases of the records and of the public models are kept."
        ],
        "rai:dataSocialImpact": "Side channels of the run, and what public models remember of "
        "their own training, are outside the guarantee.",
        "rai:dataReleaseMaintenancePlan": f"The bytes never change. {facts.account}. Contact: "
        f"{stated.contact or UNSTATED}",
    }


def columns_of(plan: Plan, sealed: Mapping[str, Any]) -> dict[str, str]:
    """What a row of a release holds: its fields, each with what it is. None of a model."""
    kind = sealed["artifact"]["media_type"]
    if kind == MODEL_ROWS:
        return {}
    columns = {"id": "Release and number of the record"}
    if plan.dataset.labels:
        columns["label"] = "One of the labels that were declared"
    return columns | (
        {"file": "The picture, in the release's folder", "sha256": "Digest of that file"}
        if kind == IMAGE_ROWS
        else {"text": "The synthetic text"}
    )


def to_json(described: dict[str, Any]) -> str:
    """The description as JSON that may stand inside a page: markup is written as escapes."""
    text = json.dumps(described, indent=2, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") + "\n"


def _file(name: str, kind: str, sha256: str, description: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": description,
        "contentUrl": name,
        "encodingFormat": kind,
        "sha256": sha256,
    }


def _field(name: str, description: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"records/{name}",
        "name": name,
        "description": description,
        "dataType": "sc:Text",
        "source": {"fileObject": {"@id": ARTIFACT}, "extract": {"column": name}},
    }
