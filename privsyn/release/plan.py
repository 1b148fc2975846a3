"""A release before it exists: its plan, and the identity its name is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, model_validator

from privsyn.columns.marginals import Marginals
from privsyn.columns.settings import ColumnsConfig
from privsyn.data.columns import Columns, in_file
from privsyn.data.conversations import instruction
from privsyn.data.settings import ImageConfig, TextExample
from privsyn.dp.accuracy import NoisyAccuracy
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.events import Event, load
from privsyn.files import values
from privsyn.methods.base import Mechanism, Method, PricingFacts, Role
from privsyn.methods.registry import load_method
from privsyn.modalities.registry import modality_of
from privsyn.models.rows import Subject
from privsyn.section import SHA256, Section

S = TypeVar("S", bound=Section)
PLAN_SCHEMA: Final = "privsyn-plan/1"


class DatasetIdentity(Section):
    """The dataset as the release knows it: public facts, an opaque version, no digest of data."""

    name: str
    version: str
    label: str | None
    labels: tuple[str, ...]
    text: str | None
    unit: str | None
    holdout: float
    images: ImageConfig | None = None
    document: str | None = None
    label_descriptions: dict[str, str] = Field(default={})
    examples: tuple[TextExample, ...] = ()
    columns: Columns = Field(default={})
    roles: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        """What prompts may say of the records. Names of code (card_arrival) are said in words."""
        # Models read words better than names of code; the label that is released stays as declared.
        spoken = {label: " ".join(label.split("_")).strip() for label in self.labels}
        changed = {label: text for label, text in spoken.items() if text and text != label}
        return Subject(
            instruction(self.document, self.roles) if self.roles else self.document,
            tuple((changed | self.label_descriptions).items()),
            self.examples,
            tuple(self.columns),
            self.roles,
        )


class ModelUse(Section):
    """One model a release reads."""

    source: str
    revision: str
    dtype: str


class Plan(Section):
    """A release before it exists: all public, computed without opening a data file.

    ``identity`` fields decide the release id: whatever shapes the distribution of the output.
    """

    plan_schema: Literal["privsyn-plan/1"] = PLAN_SCHEMA
    release_id: str | None
    """Null until the account exists."""
    method: str
    settings: dict[str, Any]
    dataset: DatasetIdentity
    account: str
    adjacency: Adjacency
    unit: str
    unit_ids: str
    """Name of the rule by which ids are one unit's however they are written
    (privsyn/data/unit_key.py)."""
    max_records_per_unit: int
    target_epsilon: float
    target_delta: float
    draw: int
    paid_epsilon: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Epsilon of an accuracy on the certificate; the release's includes it."""
    columns: ColumnsConfig | None = None
    """How the columns of the dataset are drawn. Null: it has none."""
    # names of releases that ask nothing stay as they were
    answers: str | None = Field(default=None, exclude_if=lambda rule: rule is None)
    """Name of the rule by which a model answers columns that are asked
    (privsyn/models/language/questions.py). Null: none is."""
    models: dict[Role, ModelUse]
    partition_key: str | None
    """Public id of the account's partition key."""
    amplified: bool
    """Whether the cost counts on the bucket of each unit: drawn anew, and secret."""
    epsilon: float
    epsilon_without_secret: float | None
    """Epsilon against somebody who knows the buckets. Null: the same."""
    delta: float
    rho: float | None
    mu: float | None
    """It is mu-Gaussian DP, exactly. Null: it is not."""
    event: dict[str, Any]
    derived: dict[str, float]
    invariants: tuple[str, ...]
    warnings: tuple[str, ...]
    audit_decides: bool = False
    """Whether it is published only where an audit against held-out records passes."""
    settings_digest: str = Field(pattern=SHA256)
    """SHA-256 of what was asked for, before defaults and prompts are filled in: the same in every
    version of privsyn, whatever its ids are made of."""
    rows: int
    """Synthetic records the release will hold at most: public."""
    min_rows: int | None = None
    """And at least. Null: exactly as many as rows."""
    shards: int
    """Parts the release is generated in."""
    dates: tuple[str, ...] = ()
    """What each {date:...} in dataset.path and test_path stands for."""

    @model_validator(mode="after")
    def _columns_are_paid_for(self) -> Plan:
        # privacy: columns without a draw would be priced as if they cost nothing
        if (self.columns is None) != (not self.dataset.columns):
            raise ValueError("columns, which pays for dataset.columns, goes with them")
        asks = len(in_file(self.dataset.columns)) < len(self.dataset.columns)
        if not asks == ("answers" in self.models) == (self.answers is not None):
            raise ValueError("answers, their rule and their model, go with columns that are asked")
        return self

    @classmethod
    def from_certificate(cls, sealed: Mapping[str, Any]) -> Plan:
        """The plan of a release from its certificate, which leaves out warnings and shards."""
        # Warnings and shards are not on a certificate: they change nothing that is released.
        return cls.model_validate(sealed["plan"] | {"warnings": (), "shards": 1})

    @property
    def id(self) -> str:
        """The release id of a plan whose account exists."""
        if self.release_id is None:
            raise ValueError("the plan has no account yet")
        return self.release_id

    @property
    def is_its_name(self) -> bool:
        """Whether the release id is that of what the plan says: nobody edited it."""
        # Through JSON, as in a file: the same values must give the same hash on both ways.
        return self.release_id == release_id(self.model_dump(mode="json"))

    @property
    def row_bounds(self) -> tuple[int, int]:
        """Fewest and most rows of the artifact."""
        return (self.rows if self.min_rows is None else self.min_rows), self.rows

    @property
    def rows_said(self) -> str:
        """The bounds in words."""
        fewest, most = self.row_bounds
        return str(most) if fewest == most else f"{fewest} to {most}"

    @property
    def label_shares(self) -> str:
        """See ``label_shares``."""
        exact = self.row_bounds[0] == self.rows
        return label_shares(self.method, self.settings, self.dataset.labels, self.rows, exact=exact)

    @property
    def things(self) -> str:
        """What the records are: texts or images."""
        return modality_of(self.dataset).things

    @property
    def accuracy(self) -> NoisyAccuracy | None:
        """What draws the accuracy on the certificate; None where none is paid for."""
        return accuracy_of(self.paid_epsilon, self.adjacency)

    @property
    def marginals(self) -> Marginals | None:
        """What draws the columns that stand beside the text; None without any."""
        return marginals_of(
            self.columns, self.dataset, self.target, self.adjacency, self.privacy_unit
        )

    @property
    def rows_by_label(self) -> dict[str | None, int]:
        """Most records of each label."""
        labels, split = self.dataset.labels or (None,), self.settings.get("label_split") or {}
        return {label: split.get(label, self.rows // len(labels)) for label in labels}

    @property
    def target(self) -> Guarantee:
        """What the release was asked to cost at most."""
        return Guarantee(self.target_epsilon, self.target_delta)

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """Unit and its bound on records."""
        return PrivacyUnit(self.unit, self.max_records_per_unit)

    def privacy_event(self) -> Event:
        """The event tree."""
        return load(self.event)

    @property
    def facts(self) -> PricingFacts:
        """What the release is priced by besides its settings."""
        unit, labels = self.privacy_unit, self.dataset.labels
        return pricing_facts(
            self.adjacency,
            unit,
            labels,
            self.paid_epsilon,
            self.marginals,
            secret_places=self.amplified,
        )

    def settings_of(self, method: Method[S]) -> S:
        """The settings, validated by the plan's method."""
        return method.Settings.model_validate(self.settings)

    def load_method(self) -> tuple[Method[Any], Any]:
        """The method and its validated settings."""
        method = load_method(self.method)
        return method, self.settings_of(method)

    def rebuild(self, method: Method[S], settings: S) -> Mechanism:
        """What the release draws with: rebuilt from settings, facts and the one solved number.

        Nothing else of ``derived`` is taken, its sensitivity least of all.
        """
        return method.rebuild(settings, self.target, self.facts, self.derived)

    def mechanism(self) -> Mechanism:
        """The same, for whoever has the plan alone."""
        return self.rebuild(*self.load_method())

    def priced_again(self) -> tuple[Event, Mapping[str, float]]:
        """Event and derived numbers with nothing taken from the plan's: solved from the target."""
        method, settings = self.load_method()
        # Nothing of the plan's numbers is used: a forged plan must not price itself.
        mechanism = method.calibrate(settings, self.target, self.facts)
        return mechanism.whole, dict(mechanism.derived)


def marginals_of(
    cfg: ColumnsConfig | None,
    dataset: DatasetIdentity,
    target: Guarantee,
    adjacency: Adjacency,
    unit: PrivacyUnit,
) -> Marginals | None:
    """The mechanism of declared columns."""
    if cfg is None:
        return None
    return Marginals.of(
        cfg, dataset.columns, dataset.labels, target, adjacency, unit, alone=dataset.text is None
    )


def accuracy_of(epsilon: float | None, adjacency: Adjacency) -> NoisyAccuracy | None:
    """The mechanism of an accuracy that is paid for with so much."""
    return None if epsilon is None else NoisyAccuracy(epsilon, adjacency)


def pricing_facts(
    adjacency: Adjacency,
    unit: PrivacyUnit,
    labels: tuple[str, ...],
    paid: float | None,
    marginals: Marginals | None,
    *,
    secret_places: bool,
) -> PricingFacts:
    """What a release is priced by: columns before its generator, a paid accuracy after it.

    They add up, although the held-out units are not those that the generator reads: under
    replace_one a unit may go from one part into the other, and has then touched both.
    """
    accuracy = accuracy_of(paid, adjacency)
    before = () if marginals is None else marginals.events
    after = () if accuracy is None else (accuracy.event,)
    return PricingFacts(adjacency, unit, labels, secret_places, before, after)


IDENTITY = (
    "plan_schema method settings dataset account adjacency unit unit_ids max_records_per_unit "
    "target_epsilon target_delta draw paid_epsilon columns answers models partition_key amplified"
).split()
"""Fields of a plan that enter the release id. Derived numbers follow from them."""
_WHERE_ANY = ("columns", "answers")
"""Those that say nothing where they are null: releases without them have the names they had."""


_NAMED = 10
"""Most labels whose counts a sentence names."""


def label_shares(
    method: str,
    settings: Mapping[str, Any],
    labels: Sequence[str],
    rows: int | None = None,
    *,
    exact: bool = True,
) -> str:
    """How the labels share a release, in words; empty without two labels.

    Args:
        method: The method.
        settings: Its settings.
        labels: The public labels.
        rows: Records of the release; None before it is planned.
        exact: Whether it has as many, and not at most.
    """
    where = f"methods.{method}"
    if len(labels) < 2:
        return ""
    if split := settings.get("label_split"):
        counts = [f"{count:,} of {label}" for label, count in split.items()]
        more = [f"and of {len(counts) - _NAMED} more labels"] if len(counts) > _NAMED else []
        return f"{', '.join([*counts[:_NAMED], *more])} ({where}.label_split)"
    # privacy: shares of the records are not paid for, so every label has the same number.
    public = f" ({where}.label_split sets public shares)" if "label_split" in settings else ""
    many = "as many" if rows is None else f"{'' if exact else 'at most '}{rows // len(labels):,}"
    return f"{many} of each of {len(labels)} labels, whatever their shares in the records{public}"


def release_id(identity: Mapping[str, Any]) -> str:
    """Name of a release: its method and 64 bits of its identity's SHA-256, as canonical JSON.

    A model is named by what it is: where its files have a digest, their folder's name says nothing.
    """
    named = {key: identity[key] for key in IDENTITY if key not in _WHERE_ANY or identity.get(key)}
    named["models"] = {role: _model(use) for role, use in named["models"].items()}
    return f"{identity['method']}-{identity_digest(named)[:16]}"


ASKED = tuple(
    key
    for key in IDENTITY
    if key not in "plan_schema settings dataset unit_ids answers partition_key amplified".split()
)
"""Fields of the identity that no version of privsyn fills in by rules of its own."""


def settings_digest(
    identity: Mapping[str, Any], given: Section, dataset: DatasetIdentity, *, amplification: bool
) -> str:
    """SHA-256 of what a release was asked to be, of public settings alone.

    A prompt, a default or a schema that a later version changes makes another release id of the
    same settings. This stays, so that the ledger knows the release that was paid for.

    Args:
        identity: Fields of the plan.
        given: Settings of the method before they are resolved. A default is left out: a later
            version may have another.
        dataset: Likewise.
        amplification: Whether the account lets a cost count on secret buckets.
    """
    settings = given.model_dump(mode="json", exclude_defaults=True)
    for name, *_ in values(given):  # a public file is what it holds, wherever it lies
        settings[name] = identity["settings"].get(name)
    named = {key: identity[key] for key in ASKED if key != "columns" or identity[key]} | {
        "settings": settings,
        "dataset": dataset.model_dump(mode="json", exclude_defaults=True),
        "amplification": amplification,
        "models": {role: _model(use) for role, use in identity["models"].items()},
    }
    return identity_digest(named)


def _model(use: Mapping[str, Any]) -> dict[str, Any]:
    # The same files in another folder, or on another machine, give the same release.
    digested = str(use["revision"]).startswith("sha256:")
    return {key: value for key, value in use.items() if key != "source" or not digested}


def identity_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of what names a release or a student, as canonical JSON."""
    # One form of bytes per content: neither the order of keys nor spaces may change an id.
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
