"""Judge labeled texts: by rulers that did not choose them, beside rivals that are free.

A ruler is a kind of classifier: it is trained on texts and tested on held-out real records. A
rival is what stands in the place of the release: texts of the public model, the words of the
labels alone, real records. What a release is worth is its gain over the best rival that is free.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privsyn.data.words import TOKEN, word_count
from privsyn.data.words import words as words_of
from privsyn.dp.filters import gaussian_budget
from privsyn.evaluation.classifiers import (
    MAX_FEATURES,
    REPLICATES,
    Interval,
    Scores,
    Texts,
    has_word,
    nearness_in_words,
    spread,
)
from privsyn.evaluation.metrics import Metric, evenly_spaced

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Vectors of texts, shape (texts, width)."""
Answer = Callable[[Texts, Sequence[str]], NDArray[np.str_]]
"""Trains on labeled texts and names the label of others; shape (seeds, others)."""

ENCODER, CLASSIFIER, WORDS, VOTER = "vectors", "classifier", "words", "voter"
"""Rulers, which are also the first part of their metrics' names."""
COUNTED = (ENCODER, CLASSIFIER, WORDS)
"""Rulers that decide. One that cast votes or ranked candidates is shown, and decides nothing."""

HOW: Mapping[str, str] = {
    ENCODER: "an encoder that took no part",
    CLASSIFIER: "a fine-tuned model",
    WORDS: "words",
    VOTER: "the encoder that took part",
}
"""What the rulers are, in words."""

RELEASE = "release"
FREE: Mapping[str, str] = {
    "chance": "the commonest label",
    "public": "the public model alone",
    "candidates": "all texts of the public model",
    "chosen": "public texts chosen by label words",
    "zero_shot": "label words without a text",
}
"""Rivals that cost nothing, and what they are called."""
OTHERS: Mapping[str, str] = {
    "means": "noisy class means, paid",
    "real": "as many real records",
    "all_real": "all real records",
}
"""Rivals that cost an epsilon, or privacy."""

_SEED = 20240615
_STRENGTH = 10.0
_MOST_DRAWS = 4
_NOISES = 20
"""Draws of noise on which the paid rival's accuracy is a mean."""


@dataclass(frozen=True)
class ClassMeans:
    """The paid rival: noisy sums of the unit vectors of each label, which classify by themselves.

    privacy: simulated on held-out records, internal, never a release. Each record adds one vector
    of length 1 to the sum of one label, and vectors are centered by public label words alone. Over
    all labels the L2 sensitivity is m records where units are added or removed, and 2 m where one
    replaces another. One Gaussian mechanism at (epsilon, delta).

    Attributes:
        epsilon: Of the release.
        delta: Of the release.
        sensitivity: In records.
        records: How many times as many records train a release as the simulation has. Its noise is
            divided by that.
    """

    epsilon: float
    delta: float
    sensitivity: float = 1.0
    records: float = 1.0

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in each coordinate of each sum."""
        return float(self.sensitivity / gaussian_budget(self.epsilon, self.delta) ** 0.5)


@dataclass(frozen=True)
class Case:
    """What is judged, and beside what.

    Attributes:
        release: Synthetic texts and their labels, at least two labels.
        tested: Held-out real records to test on.
        known: Other real records, to train rivals on.
        public: Candidates of the public model, if any.
        names: The words that stand for each label. Labels that are missing stand for themselves.
        document: What a record is called, or None.
        paid: The paid rival, or None.
    """

    release: Texts
    tested: Texts
    known: Texts = ()
    public: Texts = ()
    names: Mapping[str, str] = field(default_factory=dict)
    document: str | None = None
    paid: ClassMeans | None = None

    @property
    def labels(self) -> list[str]:
        """Labels of the release and of the real records."""
        return sorted({label for part in (self.release, self.tested) for _, label in part})


@dataclass(frozen=True)
class _Answers:
    """Which test records a rival names rightly.

    Attributes:
        points: Shape (draws, tested).
        drawn: With other training texts or noise, shape (samples, tested).
    """

    points: NDArray[np.bool_]
    drawn: NDArray[np.bool_]


def judge(
    case: Case,
    encoders: Mapping[str, Embed],
    *,
    chooser: Embed | None = None,
    classifier: Answer | None = None,
    replicates: int = REPLICATES,
) -> dict[str, Scores]:
    """Accuracy on held-out real records of the release and its rivals, by every ruler.

    A bootstrap sample redraws the test records, and the training texts of the release and of free
    rivals, within each label. The interval therefore covers another release of the same size and
    other test records.

    Args:
        case: Texts and rivals.
        encoders: Vectors by ruler: ``vectors`` of one that took no part, ``voter`` of one that did.
        chooser: The vectors by which the rival ``chosen`` compares candidates with label words. The
            one that cast the votes, so that neither side was chosen by its judge. None: an encoder.
        classifier: A model that is fine-tuned on the texts, or None.
        replicates: Bootstrap samples.

    Returns:
        Scores by ruler. ``value`` has the release and its rivals; ``gain`` the release less each of
        them, and ``free``: less the best of the free ones, on the same samples.
    """
    import sklearn.linear_model  # noqa: F401  # before the limit, which covers what is loaded
    from threadpoolctl import threadpool_limits

    chooser = chooser or next(iter(encoders.values()), None)
    with threadpool_limits(limits=1):  # with so few rows more threads only wait
        sets = _training_sets(case, chooser)
        rulers = {
            name: _by_vectors(case, sets, embed, replicates if name in COUNTED else 0)
            for name, embed in encoders.items()
        }
        if classifier is not None:
            rulers[CLASSIFIER] = _by_model(case, sets, classifier)
        rulers[WORDS] = _by_words(case, sets, replicates)
        truth = _labels(case.tested)
        order = [name for name in (*COUNTED, VOTER) if name in rulers]
        return {name: _scores(rulers[name], truth, replicates) for name in order}


def compare(
    sets: Mapping[str, Sequence[tuple[Any, NDArray[np.str_], Any]]],
    truth: NDArray[np.str_],
    replicates: int = REPLICATES,
) -> Scores:
    """As ``judge``, of sets of features by one ruler.

    Args:
        sets: By rival, ``release`` among them: features, labels and features of the test records of
            each draw. Features have the shape (texts, width).
        truth: Labels of the test records.
        replicates: Bootstrap samples.
    """
    return _scores(_fits(sets, truth, replicates), truth, replicates)


def _training_sets(case: Case, chooser: Embed | None) -> dict[str, list[Texts]]:
    """Texts that classifiers are trained on, by rival; several draws of the same thing."""
    sizes = Counter(label for _, label in case.release)
    sets: dict[str, list[Texts]] = {RELEASE: [case.release]}
    if case.public:
        sets["public"] = draws_of(case.public, sizes)
        if len(case.public) > len(case.release):
            sets["candidates"] = [case.public]
            if chooser is not None:
                sets["chosen"] = [chosen(case, sizes, chooser)]
    if case.known:
        sets["real"] = [case.known[: len(case.release)]]
        if len(case.known) > len(case.release):
            sets["all_real"] = [case.known]
    return sets


def draws_of(texts: Texts, sizes: Mapping[str, int]) -> list[Texts]:
    """Disjoint draws with as many texts of each label, four at most; one of what there is."""
    groups = {label: [pair for pair in texts if pair[1] == label] for label in sizes}
    times = min((len(groups[label]) // size for label, size in sizes.items() if size), default=1)
    return [
        [pair for label, size in sizes.items() for pair in groups[label][k * size : (k + 1) * size]]
        for k in range(max(1, min(times, _MOST_DRAWS)))
    ]


def chosen(case: Case, sizes: Mapping[str, int], embed: Embed) -> Texts:
    """The candidates of each label that lean most to its words: what a public model gives freely.

    Args:
        case: With candidates.
        sizes: Texts of each label.
        embed: Vectors of texts.
    """
    labels, directions = _label_words(case, embed)
    picked: list[tuple[str, str]] = []
    for label, size in sizes.items():
        group = [pair for pair in case.public if pair[1] == label]
        if not group or label not in labels:
            continue
        scores = _unit(embed([text for text, _ in group])) @ directions.T  # (group, labels)
        place = labels.index(label)
        others = np.delete(scores, place, axis=1).max(axis=1) if len(labels) > 1 else 0.0
        best = np.argsort(-(scores[:, place] - others), kind="stable")[:size]
        picked += [group[i] for i in best]
    return picked


def _label_words(case: Case, embed: Embed) -> tuple[list[str], NDArray[np.float64]]:
    """Labels, and the direction of the words of each: (labels, width), rows of length 1.

    The mean over wordings, as zero-shot classifiers of images do, so that no wording is chosen by
    test records. The mean of all labels is taken off: it says nothing of any.
    """
    labels, document = case.labels, case.document or "text"
    names = [case.names.get(label, label) for label in labels]
    forms = ("{name}", "{name}: {document}", "{document} about {name}")
    wordings = [[form.format(name=name, document=document) for name in names] for form in forms]
    # (wordings, labels, width)
    means = _unit(np.sum([_unit(embed(wording)) for wording in wordings], axis=0))
    return labels, _unit(means - means.mean(axis=0))


def _unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays zero."""
    exact = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.where(lengths > 0, lengths, 1.0))


def _by_vectors(
    case: Case, sets: Mapping[str, Sequence[Texts]], embed: Embed, replicates: int
) -> dict[str, _Answers]:
    """Answers of logistic regression over vectors, of label words, and of noisy class means."""
    tested, truth = embed([text for text, _ in case.tested]), _labels(case.tested)
    answers = _fits(
        {
            name: [(embed([text for text, _ in pairs]), _labels(pairs), tested) for pairs in draws]
            for name, draws in sets.items()
        },
        truth,
        replicates,
    )
    labels, directions = _label_words(case, embed)
    named = np.array(labels)[(_unit(tested) @ directions.T).argmax(axis=1)]
    answers["zero_shot"] = _fixed(named == truth)
    if case.paid is not None and case.known:
        center = _unit(embed([case.names.get(label, label) for label in labels])).mean(axis=0)
        answers["means"] = _by_means(case, case.paid, embed, _unit(tested - center), center)
    return answers


def _by_means(
    case: Case,
    paid: ClassMeans,
    embed: Embed,
    tested: NDArray[np.float64],
    center: NDArray[np.float64],
) -> _Answers:
    """Answers of the paid rival, one for each draw of noise."""
    labels, known, truth = case.labels, _labels(case.known), _labels(case.tested)
    vectors = _unit(embed([text for text, _ in case.known]) - center)
    # (labels, width): each record is in one sum, with length 1
    sums = np.stack([vectors[known == label].sum(axis=0) for label in labels])
    # Not for a release: numpy's noise is neither exact nor secret.
    rng, sigma = np.random.default_rng(_SEED), paid.sigma / paid.records
    hits = []
    for _ in range(_NOISES):
        noisy = _unit(sums + rng.normal(0.0, sigma, sums.shape))
        hits.append(np.array(labels)[(tested @ noisy.T).argmax(axis=1)] == truth)
    return _Answers(np.array(hits), np.array(hits))


def _by_words(
    case: Case, sets: Mapping[str, Sequence[Texts]], replicates: int
) -> dict[str, _Answers]:
    """Answers of logistic regression over words and word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    tested = [text for text, _ in case.tested]
    features: dict[str, list[tuple[Any, NDArray[np.str_], Any]]] = {}
    for name, draws in sets.items():
        features[name] = []
        for pairs in draws:
            texts = [text for text, _ in pairs]
            if not any(map(has_word, texts)):  # the vectorizer refuses them
                nothing = np.zeros((1, 1), np.float32)
                rows = (nothing.repeat(len(part), axis=0) for part in (texts, tested))
                features[name].append((next(rows), _labels(pairs), next(rows)))
                continue
            vectorizer = TfidfVectorizer(
                token_pattern=TOKEN,
                ngram_range=(1, 2),
                sublinear_tf=True,
                max_features=MAX_FEATURES,
            )
            # The vocabulary is that of all texts of the set in every bootstrap sample of it.
            train = vectorizer.fit_transform(texts)
            features[name].append((train, _labels(pairs), vectorizer.transform(tested)))
    return _fits(features, _labels(case.tested), replicates)


def _by_model(
    case: Case, sets: Mapping[str, Sequence[Texts]], classifier: Answer
) -> dict[str, _Answers]:
    """Answers of a fine-tuned model, once for each seed."""
    tested, truth = [text for text, _ in case.tested], _labels(case.tested)
    answers = {}
    for name, draws in sets.items():
        if name == "all_real":  # many texts, and no verdict hangs on them
            continue
        hits = classifier(draws[0], tested) == truth
        answers[name] = _Answers(hits, hits)
    return answers


def _labels(pairs: Texts) -> NDArray[np.str_]:
    return np.array([label for _, label in pairs], dtype=np.str_)


def _fixed(hits: NDArray[np.bool_]) -> _Answers:
    return _Answers(hits[None], hits[None])


def _fits(
    sets: Mapping[str, Sequence[tuple[Any, NDArray[np.str_], Any]]],
    truth: NDArray[np.str_],
    replicates: int,
) -> dict[str, _Answers]:
    """Fit each set, and bootstrap samples of the release and of free rivals.

    Args:
        sets: Features, labels and features of the test records of each draw of each set.
        truth: Labels of the test records.
        replicates: Samples; draws of a set take turns.
    """
    rng = np.random.default_rng(_SEED)
    answers = {}
    for name, draws in sets.items():
        models = [_Fitted(*draw) for draw in draws]
        points = np.array([model.answers() == truth for model in models])
        # Intervals of real records cover the test records alone: no verdict hangs on them.
        again = replicates if name == RELEASE or name in FREE else 0
        drawn = [models[k % len(models)].answers(rng) == truth for k in range(again)]
        answers[name] = _Answers(points, np.array(drawn) if drawn else points)
    return answers


class _Fitted:
    """Logistic regression on one set. A bootstrap sample begins at its solution, which is faster.

    Args:
        train: Features, shape (texts, width).
        labels: Label of each text.
        tested: Features of the test records.
    """

    def __init__(self, train: Any, labels: NDArray[np.str_], tested: Any) -> None:
        from sklearn.linear_model import LogisticRegression

        self._train, self._labels, self._tested = train, labels, tested
        self._groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        self._model: Any = None
        if len(self._groups) > 1:  # with one class scikit-learn's fit raises
            self._model = LogisticRegression(C=_STRENGTH, max_iter=1000, warm_start=True)
            self._model.fit(train, labels)
            self._first = self._model.coef_.copy(), self._model.intercept_.copy()

    def answers(self, rng: np.random.Generator | None = None) -> NDArray[np.str_]:
        """Labels of the test records; with ``rng``, trained on as many texts of each label anew."""
        if self._model is None:
            return np.full(self._tested.shape[0], self._labels[0])
        if rng is not None:
            rows = np.concatenate([rng.choice(group, len(group)) for group in self._groups])
            self._model.coef_, self._model.intercept_ = (part.copy() for part in self._first)
            self._model.fit(self._train[rows], self._labels[rows])
        return np.asarray(self._model.predict(self._tested))


def _scores(answers: Mapping[str, _Answers], truth: NDArray[np.str_], replicates: int) -> Scores:
    """Accuracies and gains with their intervals, on the same samples of test records."""
    commonest = Counter(truth.tolist()).most_common(1)[0][0]
    answers = {**answers, "chance": _fixed(truth == commonest)}
    rng = np.random.default_rng(_SEED)
    # (samples, tested): one sample for all rivals, so that gains are on the same records
    rows = rng.integers(0, len(truth), (max(1, replicates), len(truth)))
    points = {name: float(each.points.mean()) for name, each in answers.items()}
    samples = {
        name: np.array(
            [each.drawn[k % len(each.drawn)][picked].mean() for k, picked in enumerate(rows)]
        )
        for name, each in answers.items()
    }
    free = [name for name in FREE if name in answers]
    best = max(points[name] for name in free)
    ours, theirs = samples[RELEASE], np.max([samples[name] for name in free], axis=0)
    return Scores(
        {name: spread(points[name], samples[name], least=0) for name in answers},
        {
            name: spread(points[RELEASE] - points[name], ours - samples[name], least=-1)
            for name in answers
            if name != RELEASE
        }
        | {"free": spread(points[RELEASE] - best, ours - theirs, least=-1)},
    )


def best_free(values: Mapping[str, float]) -> str:
    """The free rival with the highest of these accuracies, by name."""
    return max((name for name in FREE if name in values), key=values.__getitem__)


def metrics_of(
    scores: Mapping[str, Scores],
    like: Mapping[str, Interval],
    case: Case,
    called: Mapping[str, str],
) -> list[Metric]:
    """The numbers of a judgment, all internal.

    Args:
        scores: Of ``judge``.
        like: Of ``likeness``.
        case: What was judged.
        called: What the encoders are called, by ruler.
    """
    sizes = {
        "public": f"as many texts of the public model, of {len(case.public)}",
        "candidates": f"all {len(case.public)} texts of the public model that were written",
        "chosen": "as many texts of the public model, those that lean most to their label's words",
        "zero_shot": "no text: the label whose words are nearest",
        "means": _NOTE_ON_MEANS,
        "real": f"{min(len(case.known), len(case.release))} other held-out real records",
        "all_real": f"{len(case.known)} other held-out real records",
        "chance": "the commonest label, always",
    }
    if case.paid is not None:
        sizes["means"] = _NOTE_ON_MEANS.format(
            epsilon=case.paid.epsilon, sensitivity=case.paid.sensitivity
        )
    metrics = []
    for ruler, measured in scores.items():
        by = called.get(ruler, HOW[ruler])
        best = best_free({name: each.value for name, each in measured.value.items()})
        numbers = {
            f"{ruler}.accuracy": (measured.value[RELEASE], f"accuracy by {by}, of the release")
        }
        numbers |= {
            f"{ruler}.{name}": (measured.value[name], f"accuracy by {by}, of {what}")
            for name, what in sizes.items()
            if name in measured.value
        }
        numbers[f"{ruler}.gain"] = (
            measured.gain["free"],
            f"accuracy over the best of what is free, {FREE[best]}",
        )
        for name, (interval, note) in numbers.items():
            metrics += _ends(name, interval, note)
        metrics += [
            Metric(f"{ruler}.records", float(len(case.tested)), "internal", "records tested on"),
            Metric(
                f"{ruler}.real_records",
                float(min(len(case.known), len(case.release))),
                "internal",
                "real records trained on, for comparison",
            ),
        ]
    for name, interval in like.items():
        ends = _ends(f"likeness.{name}", interval, _note_on(name))
        metrics += (
            ends if name.startswith(("auc", "style")) else ends[:1]
        )  # shares have no interval
    return metrics


_NOTE_ON_MEANS = (
    "no text: noisy sums of the vectors of each label, one Gaussian mechanism at epsilon "
    "{epsilon:g}, L2 sensitivity {sensitivity:g}; simulated on held-out records, and never released"
)


def _ends(name: str, interval: Interval, note: str) -> list[Metric]:
    """A metric, and its 95% interval."""
    return [
        Metric(name, interval.value, "internal", note),
        Metric(f"{name}_low", interval.low, "internal", "lower end of its 95% bootstrap interval"),
        Metric(f"{name}_high", interval.high, "internal", "upper end"),
    ]


_LIKE = {
    "auc_style": "how well length, marks and frequent words tell it from real texts: .5 not at all",
    "auc_vectors": "how well vectors tell it from real texts: .5 not at all",
    "auc": "how well words tell it from real texts (area under the ROC curve): .5 not at all",
    "style_gain": "the AUC by style of the public model alone, less that of the release",
    "frequent_words": "share of the 200 words in most real texts that appear in it",
    "words_median": "median length in words",
    "first_person": "share of texts in the first person",
    "marks": "punctuation marks a word",
}


def _note_on(name: str) -> str:
    base = name.removesuffix("_public").removesuffix("_real")
    of = " (texts of the public model alone)" if name.endswith("_public") else ""
    return _LIKE[base] + (" (other real texts)" if name.endswith("_real") else of)


@dataclass(frozen=True)
class Verdict:
    """What the records added to a release.

    Attributes:
        grade: good, fair or poor.
        sentence: What they added, in a sentence: topics, words, style, or nothing.
        why: What the grade rests on.
    """

    grade: Literal["good", "fair", "poor"]
    sentence: str
    why: str


def weigh(value: Mapping[str, float]) -> Verdict | None:
    """The verdict on a release against the best free rival, by all rulers that count together.

    ``good`` needs a gain that is shown by each of them, the encoder that took no part and words
    among them, and half of the way from the best free rival to as many real records. A ruler that
    is missing, or shows nothing, leaves ``fair`` at best.

    Args:
        value: Metrics by name.

    Returns:
        None where no ruler that counts was measured.
    """
    counted = [ruler for ruler in COUNTED if f"{ruler}.gain_low" in value]
    if not counted:
        return None
    shown = [ruler for ruler in counted if value[f"{ruler}.gain_low"] > 0]
    missing = [ruler for ruler in (ENCODER, WORDS) if ruler not in counted]
    parts = {
        "topics": (ENCODER in counted or CLASSIFIER in counted, {ENCODER, CLASSIFIER} & {*shown}),
        "words": (WORDS in counted, {WORDS} & {*shown}),
        "style": (
            "likeness.style_gain_low" in value,
            value.get("likeness.style_gain_low", 0.0) > 0,
        ),
    }
    there = [name for name, (_, more) in parts.items() if more]
    absent = [name for name, (known, more) in parts.items() if known and not more]
    unknown = [name for name, (known, _) in parts.items() if not known]
    sentence = _added_text(there, absent, unknown)
    why = [_of_ruler(value, ruler) for ruler in counted]
    if missing:
        why.append(f"{' and '.join(HOW[ruler] for ruler in missing)}: UNAVAILABLE")
    if not shown:
        grade: Literal["good", "fair", "poor"] = "fair" if there else "poor"
    elif len(shown) < len(counted) or missing:
        grade = "fair"
    else:
        grade = "good" if all(_half_way(value, ruler) for ruler in counted) else "fair"
    if is_coded(value):
        why.append("the labels mean nothing to the public model, so that what is free is at chance")
    return Verdict(grade, sentence, ". ".join(part[:1].upper() + part[1:] for part in why))


def _added_text(there: Sequence[str], absent: Sequence[str], unknown: Sequence[str]) -> str:
    rest = f" Of {_join_names(unknown)} it is not known: UNAVAILABLE." if unknown else ""
    if not there:
        if unknown and absent != ["topics", "words"]:
            return f"The records are not shown to have added anything.{rest}"
        return f"No gain over what is free could be shown.{'' if 'topics' in absent else rest}"
    lacks = f", not {_join_names(absent, 'or')}" if absent else ""
    return f"The records added {_join_names(there)}{lacks}.{rest}"


def _join_names(names: Sequence[str], word: str = "and") -> str:
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def rivals_in(value: Mapping[str, float], ruler: str) -> dict[str, float]:
    """Accuracies of the rivals by a ruler, from metrics by name."""
    rivals = {name: value.get(f"{ruler}.{name}") for name in (*FREE, *OTHERS)}
    return {name: number for name, number in rivals.items() if number is not None}


def _of_ruler(value: Mapping[str, float], ruler: str) -> str:
    rivals = rivals_in(value, ruler)
    best = best_free(rivals)
    gain, low, high = (value[f"{ruler}.gain{end}"] for end in ("", "_low", "_high"))
    real = ""
    if "real" in rivals:
        real = f", {value[f'{ruler}.real_records']:.0f} real records {rivals['real']:.3f}"
    return (
        f"accuracy by {HOW[ruler]}: release {value[f'{ruler}.accuracy']:.3f}, best that is free "
        f"{rivals[best]:.3f} ({FREE[best]}){real}; gain {gain:+.3f} [{low:+.3f}, {high:+.3f}]"
    )


def _half_way(value: Mapping[str, float], ruler: str) -> bool:
    """Whether the gain is half of what as many real records gain."""
    rivals = rivals_in(value, ruler)
    real = rivals.get("real")
    return real is not None and value[f"{ruler}.gain"] >= (real - rivals[best_free(rivals)]) / 2


def is_coded(value: Mapping[str, float]) -> bool:
    """Whether the labels mean nothing to the public model: by their words it is at chance."""
    chance = value.get(f"{ENCODER}.chance")
    if chance is None or f"{ENCODER}.zero_shot" not in value:
        return False
    words = value.get(f"{ENCODER}.zero_shot_low", value[f"{ENCODER}.zero_shot"])
    public = value.get(f"{ENCODER}.public_low", value.get(f"{ENCODER}.public", 0.0))
    return words <= chance and public <= chance


def verdict(value: Mapping[str, float]) -> str | None:
    """The headline in words; None if it was not measured.

    Args:
        value: Metrics by name.
    """
    if "nearness.cosine" in value:
        return nearness_in_words(value)
    judgment = weigh(value)
    return None if judgment is None else f"{judgment.sentence} {judgment.why}"


def table(scores: Mapping[str, Scores], like: Mapping[str, Interval] | None = None) -> str:
    """Rulers and rivals in Markdown, with 95% intervals."""
    rivals = [RELEASE, *FREE, *OTHERS]
    lines = [["", *scores], ["---"] * (len(scores) + 1)]
    for rival in rivals:
        if any(rival in each.value for each in scores.values()):
            called = FREE.get(rival) or OTHERS.get(rival, rival)
            lines.append([called, *(_cell(each.value.get(rival)) for each in scores.values())])
    best = [best_free({n: i.value for n, i in each.value.items()}) for each in scores.values()]
    gains = [
        f"{_cell(each.gain['free'], '+')} {name}"
        for each, name in zip(scores.values(), best, strict=True)
    ]
    lines.append(["gain over the best free rival", *gains])
    out = ["| " + " | ".join(cells) + " |" for cells in lines]
    out += [f"{name}: {_cell(value)}" for name, value in (like or {}).items()]
    return "\n".join(out)


def _cell(value: Interval | None, sign: str = "") -> str:
    if value is None:
        return "-"
    if value.low == value.high == value.value:
        return f"{value.value:{sign}.3f}"
    return f"{value.value:{sign}.3f} [{value.low:{sign}.3f}, {value.high:{sign}.3f}]"


_FOLDS = 5
_AUC_REPLICATES = 200
_FREQUENT = 200
"""Words in most real texts, of which the share that appears is measured."""
_STYLE_WORDS = 100
_FIRST = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|\bi['\u2019]\w+", re.IGNORECASE)
_ENGLISH = re.compile(r"\b(?:the|and|to|of|is|i|my|a)\b", re.IGNORECASE)
_MARK = re.compile(r"[^\w\s]")


def likeness(
    case: Case, encoder: Embed | None = None, *, replicates: int = _AUC_REPLICATES
) -> dict[str, Interval]:
    """How far a classifier tells the texts from real ones, and what words and manner they share.

    Every comparison has as many texts a side, and is also made for the public model's own texts and
    for other real records, by the names' ends ``_public`` and ``_real``.

    Returns:
        ``auc`` (by words), ``auc_vectors``, ``auc_style`` (by lengths, marks and the words in most
        real texts): area under the ROC curve out of fold, .5 where nothing tells them apart.
        ``style_gain``: ``auc_style`` of the public model's texts less that of the release.
        ``frequent_words``: share of the 200 words in most real texts that appear.
        ``words_median``, ``first_person`` (share of texts; where real ones are English), ``marks``
        (punctuation marks a word). Empty below 20 texts a side.
    """
    ours = [text for text, _ in case.release]
    known, tested = ([text for text, _ in part] for part in (case.known, case.tested))
    sides = {"": ours, "_public": [text for text, _ in case.public], "_real": known}
    size = min(len(ours), len(tested))
    if size < 2 * _FOLDS * 2:
        return {}
    sides = {end: evenly_spaced(part, size) for end, part in sides.items() if len(part) >= 20}
    real = evenly_spaced(tested, size)
    words = [word for word, _ in _document_counts(tested).most_common(_FREQUENT)]
    styled = words[:_STYLE_WORDS]
    out: dict[str, Interval] = {}
    curves: dict[str, _Roc] = {}
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        for end, part in sides.items():
            n = min(len(part), size)
            against = real[:n] if n < size else real
            curves[end] = _Roc.of(_style(part, styled), _style(against, styled), replicates)
            out[f"auc_style{end}"] = curves[end].interval
            out[f"auc{end}"] = _Roc.of(*_tfidf(part, against), replicates).interval
            if encoder is not None:
                pair = encoder(part), encoder(against)
                out[f"auc_vectors{end}"] = _Roc.of(*pair, replicates).interval
    if "_public" in curves:
        mine, theirs = curves[""], curves["_public"]
        out["style_gain"] = spread(
            theirs.value - mine.value, theirs.samples - mine.samples, least=-1
        )
    english = np.mean([bool(_ENGLISH.search(text)) for text in tested]) > 0.5
    for end, part in {**{e: p for e, p in sides.items() if e != "_real"}, "_real": real}.items():
        appear = {word for text in part for word in words_of(text.lower())}
        pieces = [words_of(text) for text in part]
        length = float(np.median([word_count(text) for text in part]))
        marks = sum(len(_MARK.findall(text)) for text in part) / max(1, sum(map(len, pieces)))
        plain = {"words_median": length, "marks": marks}
        if english:
            plain["first_person"] = float(np.mean([bool(_FIRST.search(text)) for text in part]))
        if words:
            plain["frequent_words"] = sum(word in appear for word in words) / len(words)
        out |= {f"{name}{end}": Interval(value, value, value) for name, value in plain.items()}
    return out


def _document_counts(texts: Sequence[str]) -> Counter[str]:
    return Counter(word for text in texts for word in sorted(set(words_of(text.lower()))))


def _style(texts: Sequence[str], words: Sequence[str]) -> NDArray[np.float64]:
    """Length, marks, capitals, digits and the rates of frequent words; (texts, features)."""
    rows = []
    for text in texts:
        pieces = words_of(text.lower())
        total, letters = max(1, len(pieces)), max(1, len(text))
        counts = Counter(pieces)
        rows.append(
            [
                np.log1p(len(pieces)),
                sum(map(str.isupper, text)) / letters,
                sum(map(str.isdigit, text)) / letters,
                *(text.count(mark) / letters for mark in ".,!?;:'\"()-\n$"),
                letters / total,
                *(counts[word] / total for word in words),
            ]
        )
    return np.array(rows)


def _tfidf(first: Sequence[str], second: Sequence[str]) -> tuple[Any, Any]:
    """Words and word pairs of two sides in one space."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    both = [*first, *second]
    if not any(map(has_word, both)):
        return np.zeros((len(first), 1)), np.zeros((len(second), 1))
    rows = TfidfVectorizer(
        token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True
    ).fit_transform(both)
    return rows[: len(first)], rows[len(first) :]


@dataclass(frozen=True)
class _Roc:
    """Area under the ROC curve of a classifier that tells two sides apart, out of fold."""

    value: float
    samples: NDArray[np.float64]

    @property
    def interval(self) -> Interval:
        return spread(self.value, self.samples, least=0)

    @classmethod
    def of(cls, first: Any, second: Any, replicates: int) -> _Roc:
        """Of the features of two sides, shape (texts, width) each."""
        from scipy.sparse import issparse, vstack
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import roc_auc_score
        from sklearn.preprocessing import StandardScaler

        n, m = first.shape[0], second.shape[0]
        both = (
            vstack([first, second]).tocsr() if issparse(first) else np.concatenate([first, second])
        )
        truth = np.repeat([0, 1], [n, m])
        rng = np.random.default_rng(_SEED)
        # Folds by position within a shuffled side, so that both are in every fold alike.
        fold = np.concatenate([rng.permutation(np.arange(size) % _FOLDS) for size in (n, m)])
        scores = np.zeros(n + m)
        for k in range(_FOLDS):
            train, test = fold != k, fold == k
            rows, others = both[train], both[test]
            if not issparse(both):
                scale = StandardScaler().fit(rows)
                rows, others = scale.transform(rows), scale.transform(others)
            strength = _STRENGTH if issparse(both) else 0.01
            model = LogisticRegression(C=strength, max_iter=1000).fit(rows, truth[train])
            scores[test] = model.decision_function(others)
        drawn = []
        for _ in range(replicates):
            rows = np.concatenate([rng.integers(0, n, n), n + rng.integers(0, m, m)])
            drawn.append(roc_auc_score(truth[rows], scores[rows]))
        return cls(float(roc_auc_score(truth, scores)), np.array(drawn))
