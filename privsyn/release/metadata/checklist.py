"""Questions on a release after NIST SP 800-226, answered from its certificate.

The topics are those of *Guidelines for Evaluating Differential Privacy Guarantees* (Near, Darais,
Lefkovitz, Howarth 2025): the guarantee and its unit, algorithms and their utility, and the hazards
of a deployment. Every answer says where it can be checked, or that it is somebody's word.
"""

from __future__ import annotations

from dataclasses import dataclass

from privsyn.release.metadata.facts import UNSTATED, Facts

WORD = "the curator's word"


@dataclass(frozen=True)
class Answer:
    """A row of the checklist.

    Attributes:
        question: What is asked.
        answer: What the certificate or the curator says.
        where: How it is checked.
    """

    question: str
    answer: str
    where: str


def checklist(facts: Facts) -> tuple[Answer, ...]:
    """The checklist of a release. Public: its certificate and ``deployment`` are all it reads.

    For a page, whose template escapes what it prints: ``Facts(sealed, deployment, one_line)`` and
    as report/outward.py does.
    """
    plan, deployment = facts.plan, facts.deployment
    noise = facts.paid["noise"]
    opendp = facts.paid["software"].get("opendp")
    labels = ", ".join(facts.words(label) for label in plan.dataset.labels) or "none"
    hold = f" A share of {plan.dataset.holdout:g} of the units was kept out of it."
    return (
        Answer(
            "Who is protected (unit of privacy)?",
            facts.not_people
            or f"Every {facts.unit}, told apart by the column {facts.words(plan.dataset.unit)}, "
            f"with {facts.used}.",
            f"certificate, plan.unit and plan.dataset.unit; that ids are right is {WORD}",
        ),
        Answer(
            "Which datasets are neighbours?",
            f"{facts.neighbours}.",
            "certificate, plan.adjacency; `privsyn verify` recomputes the event from it",
        ),
        Answer(
            "How strong is it (epsilon, delta)?",
            f"{facts.numbers}: {facts.strength}. {facts.guarantee}",
            "`privsyn verify`: release id, event and guarantee are recomputed from the settings",
        ),
        Answer(
            "Which variant of differential privacy?",
            ("Pure" if plan.delta == 0 else "Approximate")
            + " differential privacy"
            + (f"; also zCDP with rho = {plan.rho:.6g}" if plan.rho is not None else "")
            + ". In the central model.",
            "`privsyn verify`: guarantee, derived facts",
        ),
        Answer(
            "Which mechanisms read the records?",
            f"{'; '.join(facts.mechanisms)}. Method: {facts.method}.",
            "certificate, plan.event; proof in the method's guarantee.md",
        ),
        Answer(
            "Is noise safe against floating point?",
            f"Noise source: {facts.words(noise)}"
            + (f" {facts.words(opendp)}" if opendp and noise == "opendp" else "")
            + ". Private sums and scores are clipped to a grid of whole numbers whose step is in "
            "the sensitivity, and sampled exactly, or by a table whose distance from the exact law "
            "is charged (sampler: table); costs are rounded up.",
            "`privsyn verify`: class; SECURITY.md, Floating point, and randomness",
        ),
        Answer(
            "How is the budget accounted for?",
            f"One ledger, {facts.account}. The planned event is charged before records are read, "
            "whatever comes out of it.",
            "`privsyn verify --ledger URL --require-ledger`; `privsyn ledger verify`",
        ),
        Answer(
            "Were settings tuned on the records?",
            f"{deployment.tuning or UNSTATED} The guarantee takes settings, prompts and models as "
            "chosen without looking at the records, or paid for.",
            WORD,
        ),
        Answer(
            "What is released besides, without noise (invariants)?",
            f"Nothing that was read from records. Public beforehand: the labels ({labels}), the "
            f"number of records ({plan.rows_said} planned), the settings, and the models: "
            + "; ".join(f"{role}: {facts.words(use.source)}" for role, use in plan.models.items())
            + "."
            + (hold if plan.dataset.holdout else ""),
            "`privsyn verify`: derived facts; certificate, plan",
        ),
        Answer(
            "Could the public models have seen the records?",
            "Not covered: what a model remembers from its own training is outside the guarantee. "
            "Their revisions are on the certificate.",
            WORD,
        ),
        Answer(
            "Who is trusted (threat model)?",
            "The curator, who holds the records, and the machine that drew the release. Against "
            "anyone else: with every release of the account, all settings, all records but one "
            f"{facts.unit}'s, and any computing power.",
            "SECURITY.md, Against whom",
        ),
        Answer(
            "Who may reach the private records?",
            deployment.access or UNSTATED,
            WORD,
        ),
        Answer(
            "Are there side channels?",
            "Run times, memory use and the fact that a release exists or failed depend on the "
            "records and are not covered. No time of finishing is published.",
            "SECURITY.md, What is not covered",
        ),
        Answer(
            "Is the release what was certified?",
            f"Certificate SHA-256 {facts.certificate_sha256}. Every file is named by digest.",
            "`privsyn verify RELEASE`; who made it: with `--key PUBLIC.PEM` or `--ledger URL`",
        ),
        Answer(
            "What may it be used for, and what not?",
            f"{deployment.intended_use or UNSTATED} Nothing computed from it costs more privacy. "
            "It follows the records in the large: rare groups and exact counts cannot be relied "
            "on.",
            f"{WORD}; the report of the release",
        ),
        Answer(
            "Does it carry bias?",
            f"{deployment.biases or UNSTATED} Biases of the records and of the public models are "
            "kept, and small groups are blurred most.",
            WORD,
        ),
    )


def markdown(facts: Facts) -> str:
    """The checklist as a page of Markdown."""
    rows = "\n".join(
        f"| {row.question} | {_cell(row.answer)} | {_cell(row.where)} |" for row in checklist(facts)
    )
    return (
        f"# Differential privacy of {facts.words(facts.name)}\n\n"
        "Questions after NIST SP 800-226, *Guidelines for Evaluating Differential Privacy "
        "Guarantees*, answered from the certificate of the release.\n\n"
        f"| question | answer | checked by |\n|---|---|---|\n{rows}\n"
    )


def _cell(text: str) -> str:
    """A text that stays in its cell: the curator's own words may hold bars and breaks."""
    return " ".join(text.split()).replace("\\|", "|").replace("|", "\\|")
