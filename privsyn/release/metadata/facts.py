"""What all records of a release are made of, and what nobody has stated yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from privsyn.dp.accountant import shown
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Rounds,
    SampledGaussian,
)
from privsyn.dp.risk import Risk, Strength, strength
from privsyn.errors import VerificationError
from privsyn.modalities.registry import modality_of
from privsyn.release.certificate import digest, origin
from privsyn.release.layout import MODEL_ROWS
from privsyn.release.plan import Plan
from privsyn.release.settings import DeploymentConfig
from privsyn.release.warnings import MOVES, definition, judged, not_people, protected
from privsyn.section import NAME

UNSTATED = "Not stated."

WANTED = {
    "curators": "who publishes it",
    "intended_use": "what it is meant for",
    "region": "which region it is of",
    "contact": "whom to ask",
    "license": "its license",
    "tuning": "how settings were chosen",
    "access": "who may reach the private records",
    "biases": "known biases of the records",
}
"""Fields of ``deployment`` that a reader misses where they are not set, and what for."""

_MECHANISMS: Mapping[type, str] = {
    Pure: "a mechanism of pure loss",
    ZCDP: "the exponential mechanism (by its zCDP bound)",
    BoundedRange: "the exponential mechanism (by its bounded range)",
    Gaussian: "the Gaussian mechanism",
    DiscreteGaussian: "the discrete Gaussian mechanism on a lattice of whole numbers",
    SampledGaussian: "the Gaussian mechanism on Poisson samples of the units (DP-SGD)",
}


_MARKDOWN = re.compile(r"([\\`*\[\]<>|$~&!])")


def one_line(text: object) -> str:
    """A text of a certificate, which anyone may have written: printable, on one line, not long."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())[:200]


def plain(text: object) -> str:
    r"""The same for where Markdown is read: without markup, formulas or links.

    >>> plain("a [link](http://x) <b>")
    'a \\[link\\](http:\\/\\/x) \\<b\\>'
    """
    return _MARKDOWN.sub(r"\\\1", one_line(text)).replace("://", r":\/\/")


@dataclass(frozen=True)
class Facts:
    """A release as its certificate and its deployment describe it.

    Attributes:
        sealed: The certificate.
        deployment: What the config adds.
        words: What is done to free words of the certificate: escaped for Markdown, or cut alone
            where whoever prints them escapes them.
    """

    sealed: Mapping[str, Any]
    deployment: DeploymentConfig
    words: Callable[[object], str] = plain

    @cached_property
    def paid(self) -> Mapping[str, Any]:
        """The certificate of the release that was paid for."""
        return origin(self.sealed)

    @cached_property
    def plan(self) -> Plan:
        """Its plan."""
        return Plan.from_certificate(self.paid)

    @property
    def name(self) -> str:
        """Id of the release: fit for a file's name.

        Raises:
            VerificationError: It is not.
        """
        name = str(self.sealed.get("name", self.plan.id))
        if not re.fullmatch(NAME, name) or len(name) > 120:
            raise VerificationError(f"the certificate names a release {name[:80]!a}.")
        return name

    @property
    def model(self) -> bool:
        """Whether it is a model and no records."""
        return bool(self.sealed["artifact"]["media_type"] == MODEL_ROWS)

    @property
    def things(self) -> str:
        """What its records are."""
        return modality_of(self.plan.dataset).things

    @property
    def title(self) -> str:
        """A name for people."""
        kind = "Model trained on synthetic" if self.model else "Synthetic"
        return self.deployment.name or f"{kind} {self.dataset}"

    @property
    def dataset(self) -> str:
        """Name and version of the private dataset: public words."""
        dataset = self.plan.dataset
        return f"{self.words(dataset.name)} {self.words(dataset.version)}"

    @property
    def unit(self) -> str:
        """Who is protected, in a word."""
        return self.words(protected(self.paid["plan"]["dataset"], self.plan.unit))

    @property
    def method(self) -> str:
        """Title and paper of the method."""
        method = self.paid["method"]
        return f"{self.words(method['title'])} ({self.words(method['paper'])})"

    @property
    def description(self) -> str:
        """A paragraph."""
        rows = self.sealed["artifact"]["rows"]
        what = "A model" if self.model else f"{rows} synthetic {self.things}"
        return self.deployment.description or (
            f"{what} made under differential privacy, in place of the private dataset "
            f"{self.dataset}. Method: {self.method}. What any one {self.unit} contributed could "
            "shape it within the stated guarantee alone."
        )

    @property
    def published(self) -> str:
        """Day of publication, or that on which the cost was set aside."""
        day = self.deployment.published
        return day.isoformat() if day else str(self.paid["reserved_on"])

    @property
    def guarantee(self) -> str:
        """What the guarantee means: its odds, then its definition, for specialists."""
        plan = self.plan
        defined = definition(plan.epsilon, plan.delta, self.unit, plan.adjacency)
        return f"{' '.join(self.odds)} Definition: {defined}."

    @property
    def not_people(self) -> str:
        """What to know where units are rows or files; empty where a column names them."""
        dataset = self.plan.dataset
        return not_people(dataset.unit, by_file=modality_of(dataset).by_file)

    @property
    def used(self) -> str:
        """How many records of a unit are used."""
        most = self.plan.max_records_per_unit
        return "one record" if most == 1 else f"at most {most} records"

    @property
    def odds(self) -> tuple[str, ...]:
        """The risk of one unit in sentences."""
        return self.risk.words(self.unit, self.plan.adjacency)

    @property
    def risk(self) -> Risk:
        """The risk of one unit."""
        return Risk(**self.paid["risk"])

    @property
    def strength(self) -> Strength:
        """How strong the protection is, in words that all pages share."""
        epsilon = judged(self.plan.target_epsilon, self.plan.epsilon)
        return strength(epsilon, self.risk.right)

    @property
    def numbers(self) -> str:
        """Epsilon and delta, rounded up."""
        return f"epsilon {shown(self.plan.epsilon)}, delta {shown(self.plan.delta)}"

    @property
    def neighbours(self) -> str:
        """What neighbouring datasets are."""
        plan, most = self.plan, self.plan.max_records_per_unit
        used = "one is" if most == 1 else f"at most {most} are"
        return (
            f"{MOVES[plan.adjacency].format(unit=self.unit)} ({plan.adjacency.value}), with all "
            f"records of that {self.unit}, of which {used} used"
        )

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Which mechanisms read the records, each once."""
        words = {_MECHANISMS[type(leaf)]: None for leaf in _leaves(self.plan.privacy_event())}
        return tuple(words)

    @property
    def account(self) -> str:
        """What all releases of the account promise together."""
        cap = self.paid["account"]["cap"]
        return (
            f"account {self.words(self.plan.account)}: all its releases together, also when later "
            f"ones are chosen by earlier ones, stay within epsilon {shown(float(cap['epsilon']))} "
            f"at delta {shown(float(cap['delta']))}"
        )

    @property
    def certificate_sha256(self) -> str:
        """Digest of the certificate."""
        return digest(self.sealed)

    @property
    def missing(self) -> dict[str, str]:
        """Settings that are not made, and what a reader does not learn without them."""
        return {
            f"deployment.{name}": what
            for name, what in WANTED.items()
            if not getattr(self.deployment, name)
        }


def _leaves(event: Event) -> Iterator[Event]:
    if isinstance(event, Composed | Rounds | Disjoint):
        for part in event.events:
            yield from _leaves(part)
    else:
        yield event
