"""Disclosure audit: are rare features of training units in the release more often than of others?

No model, no canary. A keyed hash, a coin of known probability, puts each unit into the training
part or the hold-out, and no release saw the hold-out. A unit is *named* if a feature that only this
unit has, on either side, is in the synthetic records. Public knowledge and chance name both sides
alike, so an excess on the training side came through the release. Counts are of units: a person
with many records is named once.

The tests do not know who was held out: the signature of ``Detector`` guarantees it, and the bound
needs it. Each test gets a third of the total error (Bonferroni), so the largest of the three bounds
holds with the stated confidence.

Bound. Under ``add_remove`` and ``replace_null`` each unit is a coin of prior 1 - holdout
(``Guesses``): an absent unit contributes nothing, as the null record does. Under ``replace_one``
neighbors swap two units: each hold-out unit is matched at random with a training unit, and which
of a pair is in the training part is a fair coin; a pair is named if one of the two is. Guesses
depend on each other through the one release, which the bound allows for.

Everything here reads real records: internal. Only counts leave this module.

Source: Amin, Das, Epasto, Javanmard, Kraft, Ribero, Vassilvitskii 2026, *Phantoms and Disclosures:
a Causal Framework for Auditing Synthetic Data*, for the comparison with a hold-out.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from privsyn.data.public_files import words
from privsyn.data.records import Record
from privsyn.data.words import SPACED, runs
from privsyn.dp.adjacency import Adjacency
from privsyn.evaluation.metrics import GRADES
from privsyn.report.document import STAYS, Block, Number, ReportSection

CONFIDENCE = 0.95
_MOST = 50.0
"""The search for a bound ends at this epsilon."""

_SLACK = 0.2
"""Share of alpha that delta may take, by J."""


@dataclass(frozen=True)
class Guesses:
    """Guesses about the membership of units in one run.

    Attributes:
        units: Units (m).
        named: Units named (r).
        right: Named rightly (W).
        prior: Probability that a unit was in the run, in (0, 1).
        both: 2 then./2 then.
    """

    units: int
    named: int
    right: int
    prior: float = 0.5
    both: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.named <= self.units:
            raise ValueError(f"{self.right} right of {self.named} named of {self.units} units")
        if not 0 < self.prior < 1 or (self.both and self.prior != 0.5):
            raise ValueError(f"prior={self.prior}, both={self.both}")

    def p_value(self, epsilon: float = 0.0, delta: float = 0.0, alpha: float = 0.05) -> float:
        """Upper bound on the probability of so many right guesses in an (epsilon, delta)-DP run.

        Args:
            epsilon: 0: the output is independent of the coins.
            delta: As in the guarantee.
            alpha: Level of the test; it fixes J. Ignored where delta is 0.
        """
        from scipy.special import expit, logit
        from scipy.stats import binom

        if not self.named:
            return 1.0
        # Delta lets an expected `stray` guesses be right beyond epsilon; by Markov at most J - 1
        # of them but with probability stray / J. The binomial tail is over the rest.
        stray = self.units * delta * self.prior * (1 - self.prior) * (2 if self.both else 1)
        spare = max(0, math.ceil(stray / (_SLACK * alpha)) - 1)
        # Posterior of a guess: prior odds times e^epsilon.
        chance = expit(epsilon + logit(self.prior))
        tail = float(binom.sf(self.right - spare - 1, self.named, chance))
        return min(1.0, tail + stray / (spare + 1))

    def least_epsilon(self, delta: float, alpha: float = 1 - CONFIDENCE) -> float:
        """A lower bound on epsilon that fails with probability at most alpha.

        Args:
            delta: Of the guarantee that is audited.
            alpha: One minus the confidence.

        Returns:
            0 if the guesses show nothing.
        """
        # Not significant even against epsilon 0: no positive bound is proved.
        if self.p_value(0.0, delta, alpha) > alpha:
            return 0.0
        low, high = 0.0, _MOST
        while high - low > 1e-6:  # the p-value grows with epsilon
            middle = (low + high) / 2
            if self.p_value(middle, delta, alpha) <= alpha:
                low = middle
            else:
                high = middle
        # ``low`` is rejected at this confidence, so the bound is rounded down.
        return low


MOST_UNITS = 20_000
"""More units are subsampled by a public hash of the unit, the same on both sides."""

MOST_RECORDS = 50
"""Records of a unit that are examined."""

FEWEST = 20
"""Fewer units on a side are not audited."""

_NGRAM, _SHINGLE = 6, 3
_ILLEGIBLE = f"most units have no record of {_SHINGLE} words that the tests can tell apart"
_ALIKE = 0.3
"""Jaccard similarity of shingles from which a text is a near duplicate."""
_SAME_PICTURE = 0.9
"""Correlation of pixels from which an image is a near duplicate."""
_SIDE, _SEED = 16, 20260615
_BLOCK = 1 << 24
"""Similarities in memory at once."""

_IDENTIFIERS = (
    rf"{SPACED}(?:{SPACED}|[.!#$%&'*+/=?^`{{|}}~-]){{0,63}}@(?:{SPACED}|[.-]){{1,250}}\.[A-Za-z]{{2,}}",
    # phone, account, card numbers, dates
    rf"(?<!{SPACED})\d(?:[ ().-]{{0,2}}\d){{5,30}}(?!{SPACED})",
    rf"(?<!{SPACED})[A-Za-z]{{1,6}}-?\d{{3,20}}(?!{SPACED})",  # record numbers
)
"""Patterns of identifiers of one person."""

Contents = Sequence[Sequence[str]]
"""The records of each unit. The side of the unit is not included."""

Detector = Callable[[Sequence[str], Contents], set[int]]
"""Synthetic records and those of all units -> the numbers of the units that are named."""


@dataclass
class Person:
    """A unit: whether it is in the training part, and its records."""

    inside: bool
    contents: list[str] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Claim:
    """What a release claims, and how the hold-out was chosen. All public.

    Attributes:
        epsilon: As certified, for one unit.
        delta: As certified.
        adjacency: How neighbors differ.
        holdout: Probability that a unit is held out.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    holdout: float


@dataclass(frozen=True)
class Test:
    """One test.

    Attributes:
        name: What it looks for.
        named: Units (pairs under ``replace_one``) with such a feature in the release.
        inside: Those in the training part.
        p_value: Of this test alone, if the release reveals nothing about membership.
        epsilon: Lower bound on the release's epsilon, at this test's share of the error.
    """

    name: str
    named: int
    inside: int
    p_value: float
    epsilon: float


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit. Internal.

    Attributes:
        unavailable: Why the audit could not run; None if it ran.
        training: Units of the training part that were examined.
        held_out: Units of the hold-out.
        tests: Each test.
        p_value: Of all tests together.
        epsilon: Lower bound on epsilon, with ``confidence``.
        confidence: Probability, over who was held out, that the bound does not exceed a true claim.
        exceeds: Whether the bound exceeds the release's claim.
    """

    unavailable: str | None = None
    training: int = 0
    held_out: int = 0
    tests: tuple[Test, ...] = ()
    p_value: float = 1.0
    epsilon: float = 0.0
    confidence: float = CONFIDENCE
    exceeds: bool = False

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON values."""
        return asdict(self)


def gather(records: Iterable[tuple[bool, Record]], most: int = MOST_UNITS) -> list[Person]:
    """At most ``most`` units with their records: those with the smallest public hashes.

    Args:
        records: Each with whether its unit is in the training part.
        most: Units.
    """
    people: dict[bytes, Person] = {}
    limit = b"\xff" * 16
    for inside, record in records:
        # privacy: the hash is of the unit id alone, independent of the coin that chose the hold-out
        name = hashlib.blake2b(record.unit.encode(), digest_size=16, person=b"privsyn audit")
        key = name.digest()
        if key > limit:
            continue
        person = people.setdefault(key, Person(inside))
        if len(person.contents) < MOST_RECORDS:
            person.contents.append(record.content)
        # Thinning at twice the limit costs O(1) a record, and memory stays bounded.
        if len(people) > 2 * most:
            limit = sorted(people)[most - 1]
            people = {key: person for key, person in people.items() if key <= limit}
    return [people[key] for key in sorted(people)[:most]]


def audit(
    synthetic: Sequence[str],
    people: Sequence[Person],
    claim: Claim,
    detectors: Mapping[str, Detector],
) -> AuditResult:
    """Test whether a release reveals who is in it.

    Args:
        synthetic: Its records, in the form of ``Record.content``.
        people: All units, of both sides, the hold-out chosen by keyed hash.
        claim: The guarantee of the release and the probability of being held out.
        detectors: The tests, fixed before a record was seen: ``TEXTS`` or ``IMAGES``.
    """
    inside = np.array([person.inside for person in people], np.bool_)
    training, held_out = int(inside.sum()), int((~inside).sum())
    if min(training, held_out) < FEWEST:
        return AuditResult(f"fewer than {FEWEST} units on one side", training, held_out)
    contents = [person.contents for person in people]
    if detectors is TEXTS:
        legible = (any(_runs(text, _SHINGLE) for text in texts) for texts in contents)
        if 2 * sum(legible) < len(contents):  # nothing found would mean nothing
            return AuditResult(_ILLEGIBLE, training, held_out)
    # Bonferroni: the largest bound of all tests holds with CONFIDENCE.
    alpha = (1 - CONFIDENCE) / len(detectors)
    pairs = _pairs(inside) if claim.adjacency is Adjacency.REPLACE_ONE else None
    tests = []
    for name, detect in detectors.items():
        named = detect(synthetic, contents)
        guesses = (
            Guesses(len(people), len(named), int(inside[sorted(named)].sum()), 1 - claim.holdout)
            if pairs is None
            else _of_pairs(pairs, named)
        )
        least = guesses.least_epsilon(claim.delta, alpha)
        tests.append(Test(name, guesses.named, guesses.right, guesses.p_value(), least))
    p_value = min(1.0, len(tests) * min(test.p_value for test in tests))
    epsilon = max(test.epsilon for test in tests)
    return AuditResult(
        None, training, held_out, tuple(tests), p_value, epsilon, exceeds=epsilon > claim.epsilon
    )


def _pairs(inside: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Training and hold-out units matched at random, each unit at most once.

    The seed is fixed, and units are in the order of a hash of their ids (``gather``). Every
    assignment of units to places is therefore equally likely, and which of a pair is inside is a
    fair coin.
    """
    rng = np.random.default_rng(_SEED)
    trained, holdout = (rng.permutation(np.flatnonzero(side)) for side in (inside, ~inside))
    return [(int(one), int(other)) for one, other in zip(trained, holdout, strict=False)]


def _of_pairs(pairs: Sequence[tuple[int, int]], named: set[int]) -> Guesses:
    # A pair with both or neither named is no guess.
    hits = [one in named for one, other in pairs if (one in named) != (other in named)]
    return Guesses(len(pairs), len(hits), sum(hits), both=True)


def _alone(features: Callable[[str], Iterable[str]]) -> Detector:
    """A detector of units with a feature that is in the release and that no other unit has."""

    def detect(synthetic: Sequence[str], contents: Contents) -> set[int]:
        written = {feature for text in synthetic for feature in features(text)}
        features_of = [
            {feature for text in texts for feature in features(text) if feature in written}
            for texts in contents
        ]
        owners = Counter(feature for texts in features_of for feature in texts)
        return {
            i
            for i, texts in enumerate(features_of)
            if any(owners[feature] == 1 for feature in texts)
        }

    return detect


def _runs(text: str, length: int = _NGRAM) -> list[str]:
    """All runs that are worth ``length`` words."""
    return [" ".join(run) for run in runs(words(text), length)]


def _identifiers(text: str) -> Iterable[str]:
    text = unicodedata.normalize("NFKC", text)
    return (match.group().lower() for shape in _IDENTIFIERS for match in re.finditer(shape, text))


def _nearest(similar: Callable[[Sequence[str], Sequence[str]], Any], least: float) -> Detector:
    """A detector of units that are the single nearest unit of some synthetic record.

    Args:
        similar: Yields blocks of similarities, shape (some synthetic, real), of all synthetic.
        least: Least similarity of a near record.
    """

    def detect(synthetic: Sequence[str], contents: Contents) -> set[int]:
        real = [content for records in contents for content in records]
        # owner: shape (all records of all units,), the unit of each record
        owner = np.repeat(np.arange(len(contents)), [len(records) for records in contents])
        named: set[int] = set()
        for block in similar(synthetic, real) if len(real) and len(synthetic) else ():
            best = block.max(axis=1)
            for row in np.flatnonzero(best >= least):
                owners = np.unique(owner[block[row] >= best[row] - 1e-9])
                if len(owners) == 1:  # a tie between two units identifies neither
                    named.add(int(owners[0]))
        return named

    return detect


def _shingles(synthetic: Sequence[str], real: Sequence[str]) -> Iterable[Any]:
    """Jaccard similarity of the sets of word triples (Broder 1997)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    sets = HashingVectorizer(
        analyzer=lambda text: _runs(text, _SHINGLE), binary=True, norm=None, alternate_sign=False
    )
    ours, theirs = sets.transform(synthetic), sets.transform(real).T.tocsr()
    sizes = np.asarray(ours.sum(axis=1)).ravel(), np.asarray(theirs.sum(axis=0)).ravel()
    for some in _blocks(ours.shape[0], len(real)):
        # shapes (block, features) @ (features, real) -> (block, real)
        both = (ours[some] @ theirs).toarray()
        either = sizes[0][some, None] + sizes[1][None, :] - both
        yield both / np.maximum(either, 1)


def _pixels(synthetic: Sequence[str], real: Sequence[str]) -> Iterable[Any]:
    """Correlation of gray pixels of a small copy."""
    ours, theirs = _small(synthetic), _small(real)
    for some in _blocks(len(ours), len(theirs)):
        yield ours[some] @ theirs.T


def _blocks(rows: int, columns: int) -> Iterable[slice]:
    """Rows by the block, so that a block by all columns fits into memory."""
    size = max(1, _BLOCK // columns)
    return (slice(start, start + size) for start in range(0, rows, size))


def _small(contents: Sequence[str]) -> Any:
    from PIL import Image

    from privsyn.data.images import decode

    rows = np.empty((len(contents), _SIDE * _SIDE), np.float32)
    for i, content in enumerate(contents):
        gray = Image.fromarray(decode(content)).convert("L").resize((_SIDE, _SIDE))
        rows[i] = np.asarray(gray, np.float32).ravel()
    # rows centered and of length 1, so that their products are correlations
    rows -= rows.mean(axis=1, keepdims=True)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


TEXTS: Mapping[str, Detector] = {
    "rare_ngrams": _alone(_runs),
    "identifiers": _alone(_identifiers),
    "near_duplicates": _nearest(_shingles, _ALIKE),
}
IMAGES: Mapping[str, Detector] = {"near_duplicates": _nearest(_pixels, _SAME_PICTURE)}
TABLES: Mapping[str, Detector] = {"rare_rows": _alone(lambda row: [row])}


_KEY, _TITLE = "disclosure", "Does it reveal who is in the data?"
_KINDS: Mapping[str, str] = {
    "rare_ngrams": f"{_NGRAM} words in a row that one unit alone has",
    "identifiers": "addresses, numbers and codes that one unit alone has",
    "near_duplicates": "records of the release that are nearly one unit's own",
    "rare_rows": "rows whose cells together one unit alone has",
}


def section(result: Mapping[str, Any] | None, epsilon: float) -> ReportSection:
    """The audit as a section of the internal report.

    Args:
        result: As AuditResult.to_json writes it; None if the release was not audited.
        epsilon: Epsilon of the release.
    """
    if result is None:
        why = "The disclosure audit was not run (evaluate.audit)."
        return ReportSection(_KEY, _TITLE, STAYS, [Block("missing", why)], None, "Not measured.")
    if result["unavailable"] is not None:
        why = f"Disclosure audit: UNAVAILABLE, since {result['unavailable']}."
        return ReportSection(_KEY, _TITLE, STAYS, [Block("missing", why)], None, "Not measured.")
    sure, least, p_value = f"{result['confidence']:.0%}", result["epsilon"], result["p_value"]
    decided = GRADES.first("disclosure", {**result, "claim": epsilon})
    numbers = [
        ("epsilon at least", least, f"{sure} confident, over who was held out"),
        ("p-value", p_value, "of all tests, if the release reveals nothing about membership"),
        ("training units", float(result["training"]), "that were examined"),
        ("held-out units", float(result["held_out"]), "that were examined"),
    ]
    for test in result["tests"]:
        name, what = test["name"].replace("_", " "), _KINDS[test["name"]]
        numbers += [
            (f"{name}: training", float(test["inside"]), f"units found by {what}"),
            (f"{name}: held out", float(test["named"] - test["inside"]), "the same by chance"),
            (f"{name}: p-value", test["p_value"], "of this test alone"),
        ]
    shown = Block("numbers", *(Number(*one) for one in numbers))
    return ReportSection(_KEY, _TITLE, STAYS, [shown], decided["grade"], decided["says"])
