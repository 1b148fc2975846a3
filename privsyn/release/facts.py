"""Public facts of a release, read once from its certificate, for every page and export."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from privsyn.dp.accountant import format_epsilon
from privsyn.dp.events import (
    ZCDP,
    BoundedRange,
    DiscreteGaussian,
    Gaussian,
    Pure,
    SampledGaussian,
    leaves,
)
from privsyn.dp.risk import FAMILY, Risk, Strength, strength
from privsyn.errors import VerificationError
from privsyn.layout import CERTIFICATE, IMAGE_ROWS, MODEL_ROWS
from privsyn.modalities.registry import modality_of
from privsyn.release.advice import (
    CAUTIONS,
    MOVES,
    definition,
    not_people,
    on_secret,
    protected_unit,
    rated_epsilon,
    several,
)
from privsyn.release.certificate import digest, origin
from privsyn.release.certificate import read as read_certificate
from privsyn.release.plan import Plan
from privsyn.release.settings import Card, Stated
from privsyn.section import NAME

UNSTATED = "Not stated."

WANTED: Mapping[Card, str] = {
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


Escape = Callable[[object], str]
T = TypeVar("T")

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


class UnreadCertificate(VerificationError, ValueError):
    """A certificate of another version. A ValueError, as all that a fact is missing for."""


def _part(kind: Callable[[Any], T], *keys: str, paid: bool = False) -> cached_property[T]:
    """A part of the certificate, or of that of the release that was ``paid`` for."""

    def read(facts: ReleaseFacts) -> T:
        part: Any = facts.paid if paid else facts.certificate
        for key in keys:
            part = part[key]
        return kind(part)

    return cached_property(read)


def _section(key: str, *, paid: bool = False) -> cached_property[dict[str, Any]]:
    """A mapping that not every certificate has; empty where it has none."""
    return cached_property(
        lambda facts: dict((facts.paid if paid else facts.certificate).get(key) or {})
    )


@dataclass(frozen=True)
class ReleaseFacts:
    """A release as its certificate and its deployment describe it. Public.

    A certificate that somebody handed in may lack anything: what is missing is a ``LookupError``,
    ``TypeError`` or ``ValueError`` of the fact that needs it.

    Attributes:
        certificate: As it lies in the folder.
        deployment: What the config adds.
        words: What is done to free words of the certificate: escaped for Markdown, or cut alone
            where whoever prints them escapes them.
    """

    certificate: Mapping[str, Any]
    deployment: Stated = field(default_factory=dict)
    words: Escape = plain

    @classmethod
    def read(
        cls, folder: Path, deployment: Stated | None = None, words: Escape = plain
    ) -> ReleaseFacts:
        """The facts of the release in a folder.

        Raises:
            VerificationError: Its certificate is missing or not JSON.
        """
        return cls(read_certificate(folder)[1], deployment or {}, words)

    # --- as the certificate has them --------------------------------------------------------------

    # Cached: each is parsed from JSON and asked for by many sentences.
    @cached_property
    def paid(self) -> Mapping[str, Any]:
        """The certificate of the release that was paid for: this one, or its parent's."""
        return origin(self.certificate)

    @cached_property
    def plan(self) -> Plan:
        """What was planned and paid for.

        Raises:
            UnreadCertificate: This version does not read it.
        """
        name = "a release"
        try:
            name = one_line(self.name)
            return Plan.from_certificate(self.paid)
        except (LookupError, TypeError, ValueError):
            raise UnreadCertificate(
                f"{CERTIFICATE} of {name} is not one that this privsyn reads.",
                hint="Another version or build made it: use that one.",
            ) from None

    release_id = _part(str, "plan", "release_id", paid=True)
    """Id of the release that was paid for."""

    @property
    def name(self) -> str:
        """Its id; of what was made from a release, its own name."""
        return str(self.certificate.get("name", self.release_id))

    @property
    def file_name(self) -> str:
        """The name, fit for a file's.

        Raises:
            VerificationError: It is not.
        """
        # The certificate's writer is not trusted, and file systems allow names of 255 bytes with
        # endings.
        if not re.fullmatch(NAME, self.name) or len(self.name) > 120:
            raise VerificationError(f"the certificate names a release {self.name[:80]!a}.")
        return self.name

    derived = _section("derived")
    """What it was made with from another release, by kind; empty of a release itself."""

    @property
    def is_derived(self) -> bool:
        """Whether it was made from another release, at no cost."""
        return "derived" in self.certificate

    kind = _part(str, "class")
    """Its class: ``dp-release``, or ``not-private`` of one drawn with predictable noise."""

    @property
    def is_private(self) -> bool:
        """Whether its guarantee holds: its noise was not predictable."""
        return self.kind == "dp-release"

    rows = _part(int, "artifact", "rows")
    """Records in it; of a model, files."""

    file = _part(str, "artifact", "file")
    """Name of the file with its records."""

    sha256 = _part(str, "artifact", "sha256")
    """Digest of that file."""

    media_type = _part(str, "artifact", "media_type")
    """What that file holds: see ``layout``."""

    @property
    def is_model(self) -> bool:
        """Whether it is a model and no records."""
        return self.media_type == MODEL_ROWS

    @property
    def is_images(self) -> bool:
        """Whether its records are images."""
        return self.media_type == IMAGE_ROWS

    @property
    def is_table(self) -> bool:
        """Whether its records are columns alone, without a text."""
        return not (self.is_images or self.is_model) and self.plan.dataset.text is None

    noise = _part(str, "noise", paid=True)
    """Its noise source."""

    software = _section("software")
    """Versions of what made it, by name."""

    draw_counts = _section("drawn", paid=True)
    """What its method counted while drawing: outputs of the mechanism."""

    accuracy = _section("accuracy")
    """The accuracy that it paid for; empty if it paid for no accuracy, and for what is made from
    the release, too: the test was of the release."""

    exhibits = _section("exhibits")
    """Digests of its pictures and tables, by name."""

    reserved_on = _part(str, "reserved_on", paid=True)
    """Day (UTC) on which its cost was set aside."""

    @property
    def certificate_sha256(self) -> str:
        """Digest of the certificate."""
        return digest(dict(self.certificate))

    account_balance = _part(dict[str, Any], "account", paid=True)
    """The account as it was with this release when its cost was set aside."""

    # --- in words ---------------------------------------------------------------------------------

    @property
    def things(self) -> str:
        """What its records are."""
        return modality_of(self.plan.dataset).things

    @property
    def title(self) -> str:
        """A name for people."""
        kind = "Model trained on synthetic" if self.is_model else "Synthetic"
        return self.deployment.get("name") or f"{kind} {self.dataset}"

    @property
    def dataset(self) -> str:
        """Name and version of the private dataset: public words."""
        dataset = self.plan.dataset
        return f"{self.words(dataset.name)} {self.words(dataset.version)}"

    @property
    def unit(self) -> str:
        """Who is protected, in a word."""
        return self.words(protected_unit(self.plan.dataset, self.plan.unit))

    @property
    def units(self) -> str:
        """Several of them."""
        return several(self.unit, self.plan.dataset.unit)

    @property
    def method(self) -> str:
        """Title and paper of the method."""
        return f"{self.method_title} ({self.words(self.paid['method']['paper'])})"

    @property
    def method_title(self) -> str:
        """Title of the method."""
        return self.words(self.paid["method"]["title"])

    @property
    def labels(self) -> tuple[str, ...]:
        """The public labels."""
        return tuple(self.words(label) for label in self.plan.dataset.labels)

    @property
    def domains(self) -> dict[str, str]:
        """The public columns beside the text, each with its declared domain."""
        columns = self.plan.dataset.columns
        return {one_line(name): self.words(column.domain) for name, column in columns.items()}

    @property
    def models(self) -> list[str]:
        """The public models, each with its role."""
        return [f"{role}: {self.words(use.source)}" for role, use in self.plan.models.items()]

    @property
    def description(self) -> str:
        """A paragraph."""
        what = "A model" if self.is_model else f"{self.rows} synthetic {self.things}"
        return self.deployment.get("description") or self._says("description", what=what)

    @property
    def publication_day(self) -> str:
        """Day of publication, or that on which the cost was set aside."""
        return self.deployment.get("published") or self.reserved_on

    @property
    def guarantee(self) -> str:
        """What the guarantee means: its odds, then its definition, for specialists."""
        return f"{' '.join(self.odds)} Definition: {self.definition}."

    @property
    def definition(self) -> str:
        """The guarantee as its definition has it, for specialists."""
        plan = self.plan
        return definition(plan.epsilon, plan.delta, self.unit, plan.adjacency, plan.mu)

    @property
    def not_people(self) -> str:
        """What to know where units are rows or files; empty where a column names them."""
        return not_people(self.plan.dataset)

    @property
    def records_used(self) -> str:
        """How many records of a unit are used."""
        most = self.plan.max_records_per_unit
        return "one record" if most == 1 else f"at most {most} records"

    @property
    def odds(self) -> tuple[str, ...]:
        """The risk of one unit in sentences, with and without the secret of its buckets."""
        words = (
            *self.risk.words(self.unit, self.plan.adjacency, self.units),
            Risk(**self.paid["risk_together"]).words_together(FAMILY, self.units),
        )
        return (*words, self.secret) if self.secret else words

    @property
    def secret(self) -> str:
        """What its cost counts on that is secret, and what it is without; empty: nothing."""
        epsilon, known = self.plan.epsilon_without_secret, self.risk_without_secret
        if epsilon is None or known is None:
            return ""
        return on_secret(self.unit, epsilon, known)

    @property
    def risk(self) -> Risk:
        """The risk of one unit."""
        return Risk(**self.paid["risk"])

    @property
    def risk_without_secret(self) -> Risk | None:
        """The risk from somebody who knows the buckets; None where that is the same."""
        figures = self.paid.get("risk_without_secret")
        return None if figures is None else Risk(**figures)

    @property
    def strength(self) -> Strength:
        """How strong the protection is, in words that all pages share."""
        return strength(self.judged_epsilon, self.risk.right)

    @property
    def judged_epsilon(self) -> float:
        """The epsilon by which words judge it: see ``advice.rated_epsilon``."""
        return rated_epsilon(self.plan.target_epsilon, self.plan.epsilon)

    @property
    def numbers(self) -> str:
        """Epsilon and delta, rounded up."""
        return (
            f"epsilon {format_epsilon(self.plan.epsilon)}, delta {format_epsilon(self.plan.delta)}"
        )

    @property
    def neighbors(self) -> str:
        """What neighboring datasets are."""
        moves = MOVES[self.plan.adjacency].format(unit=self.unit)
        return self._says("neighbors", moves=moves)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Which mechanisms read the records, each once."""
        # A dict keeps the order of the event tree and drops repeats.
        words = {_MECHANISMS[type(leaf)]: None for leaf in leaves(self.plan.privacy_event())}
        return tuple(words)

    @property
    def account(self) -> str:
        """What all releases of the account promise together."""
        cap = self.account_balance["cap"]
        epsilon, delta = (format_epsilon(float(cap[name])) for name in ("epsilon", "delta"))
        return self._says("cap_of_all", epsilon=epsilon, delta=delta)

    @property
    def accuracy_sentences(self) -> tuple[str, ...]:
        """The accuracy that it pays for, in sentences; nothing where it pays for none."""
        if not (paid := self.accuracy):
            return ()
        epsilon = format_epsilon(paid["epsilon"])
        return CAUTIONS.says("paid_accuracy", paid=paid, units=self.units, epsilon=epsilon)

    def _says(self, table: str, **more: Any) -> str:
        return str(CAUTIONS.first(table, {"facts": self, **more})["says"])

    @property
    def columns(self) -> dict[str, str]:
        """The fields of a row, each with what it is. None of a model."""
        if self.is_model:
            return {}
        columns = {"id": "Release and number of the record"}
        if self.plan.dataset.labels:
            columns["label"] = "One of the labels that were declared"
        columns |= self.domains
        if self.is_table:
            return columns
        return columns | (
            {"file": "The picture, in the release's folder", "sha256": "Digest of that file"}
            if self.is_images
            else {"text": "The synthetic text"}
            | ({"messages": "Its turns, role and content"} if self.plan.dataset.roles else {})
        )

    @property
    def missing(self) -> dict[str, str]:
        """Settings that are not made, and what a reader does not learn without them."""
        return {
            f"deployment.{name}": what
            for name, what in WANTED.items()
            if not self.deployment.get(name)
        }
