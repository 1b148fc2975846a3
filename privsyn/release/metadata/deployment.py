"""A release as an entry of the OpenDP Deployments Registry, tier 3."""

from __future__ import annotations

import re
from typing import Any

import yaml

from privsyn.release.metadata.facts import UNSTATED, Facts


def deployment(facts: Facts) -> dict[str, Any]:
    """The entry: plain values under the names of the registry's schema.

    What nobody stated is said to be so where the schema wants it, and left out where it does not.
    """
    plan, stated = facts.plan, facts.deployment
    opendp = facts.words(facts.paid["software"].get("opendp"))
    code = facts.words(facts.paid["software"].get("privsyn"))
    curators = list(stated.curators) or [UNSTATED]
    unit, method = facts.unit, facts.method
    labels = ", ".join(facts.words(label) for label in plan.dataset.labels)
    domain = f"Collections of {facts.things}" + (
        f", each with a label among {labels}" * bool(labels)
    )
    parameters: dict[str, float] = {"epsilon": plan.epsilon, "delta": plan.delta}
    if plan.rho is not None:
        parameters["rho"] = plan.rho
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": facts.title,
                "data_curators": curators,
                "description": facts.description,
                "intended_use": stated.intended_use or UNSTATED,
                "data_product_type": "Machine learning model" if facts.model else "Synthetic data",
                "data_product_region": stated.region or UNSTATED,
                "publication_date": facts.published,
                **({"data_product_sector": stated.sector} if stated.sector else {}),
            },
            "dp_variant": {
                "variant_name": "Pure DP" if plan.delta == 0 else "Approximate DP",
                "data_domain": stated.domain or f"{domain}.",
                "unprotected_quantities": "None that is read from records. Public beforehand: the "
                f"set of labels ({labels or 'none'}), the number of synthetic records planned "
                f"({plan.rows_said}), the settings and the public models.",
            },
            "privacy_loss": {
                "privacy_unit": f"{unit}, with {facts.used}",
                "privacy_unit_details": f"{facts.neighbours}. {facts.not_people}".rstrip(),
                "privacy_parameters": parameters,
                "privacy_parameters_details": facts.guarantee,
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": "The curator holds the records, sets everything and is trusted, as is "
                "the machine that drew the release. Whoever receives it, or any other release of "
                "the account, is not: all may know the settings, the code and all records but "
                f"those of one {unit}.",
                "release_type": "One release",
                "release_type_details": f"Others may be drawn on the same {facts.account}.",
                "access_type": "Non-interactive",
                "access_type_details": "The release is handed out as it is.",
                **({"data_source_type": stated.data_source} if stated.data_source else {}),
            },
            "accounting": {
                "post_processing": "Writing the drawn records as files, checks of their form, "
                "statistics and plots of them"
                + ("; training a model on them" if facts.model else "")
                + ".",
                "composition": "All that reads the records is one event, priced by its Renyi "
                "divergences or loss distribution; parts on disjoint records cost the dearest "
                f"one. Over releases: {facts.account}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{stated.tuning or UNSTATED} Settings "
                "are taken as public. Records are dropped one by one, by what is in them alone; "
                f"of a {unit} at most {plan.max_records_per_unit} are used.",
                "mechanisms": f"{'; '.join(facts.mechanisms)}, by the exact samplers of OpenDP "
                f"{opendp}, or by a table whose distance from the exact law is charged (sampler: "
                "table), on whole numbers, which leaves no floating point in what is noised. "
                f"Method: {method}. Code: privsyn {code}. Timing is not protected: nobody outside "
                f"may watch a run. Access: {stated.access or UNSTATED}",
                "justification": "Release id, event and guarantee are recomputed from the settings "
                "by `privsyn verify`; each method's proof lies beside its code (guarantee.md).",
            },
            "administrative": {
                "registry_authors": list(stated.authors or curators),
                "sources": stated.url or UNSTATED,
                "notes": " ".join(
                    [
                        f"Release {facts.words(facts.name)}, certificate SHA-256 "
                        f"{facts.certificate_sha256}.",
                        *([f"Contact: {stated.contact}."] if stated.contact else []),
                        *([stated.notes] if stated.notes else []),
                    ]
                ),
            },
        },
    }


def to_yaml(entry: dict[str, Any]) -> str:
    """The entry as YAML: texts are quoted where they need it, and no tag is written."""
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)
