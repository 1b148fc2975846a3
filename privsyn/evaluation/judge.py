"""Judge synthetic texts: by rulers that did not choose them, beside rivals that are free.

A ruler trains on texts, or compares them, and is tested on held-out real records. A rival stands in
the place of the release: texts of the public model, the user's own examples, the words of the
labels, real records. What the records added is the gain over the best rival that is free.

A new ruler is a row of RULERS, and where it needs a model, the tool that stages/measure.py loads
for it. A new rival is a row of RIVALS. Metrics, reports and comparisons read these lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data.words import words as words_of
from privsyn.evaluation.classifiers import (
    REPLICATES,
    Interval,
    Texts,
    draws_of,
    has_word,
    spread,
    vectorizer,
)
from privsyn.evaluation.metrics import Metric, evenly_spaced

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Vectors of texts, shape (texts, width)."""

RELEASE, GAIN = "release", "gain"
"""Columns of a table of scores, beside the rivals': the release, and its gain over the best rival
that is free."""
COUNTS = {"records": "records tested on", "real_records": "real records drawn, for comparison"}
"""Further columns: numbers of records."""

_SEED = 20240615
_STRENGTH = 10.0


@dataclass(frozen=True)
class Case:
    """What is judged, and beside what.

    Attributes:
        release: Synthetic texts and their labels. Texts without labels have the label "".
        tested: Held-out real records to test on.
        known: Other real records, to train rivals on.
        public: Texts of the public model, if any.
        examples: The user's invented texts. Free, since they were there before any record was read.
        names: The words that stand for each label. Labels that are missing stand for themselves.
        document: What a record is called, or None.
    """

    release: Texts
    tested: Texts
    known: Texts = ()
    public: Texts = ()
    examples: Texts = ()
    names: Mapping[str, str] = field(default_factory=dict)
    document: str | None = None

    @property
    def labels(self) -> list[str]:
        """Labels of the release and of the real records."""
        return sorted({label for part in (self.release, self.tested) for _, label in part})

    @property
    def is_labeled(self) -> bool:
        """Whether there are labels to tell apart."""
        return self.labels != [""]

    @property
    def sizes(self) -> Counter[str]:
        """Texts of each label in the release."""
        return Counter(label for _, label in self.release)


@dataclass(frozen=True)
class Answers:
    """How well each test record is answered: 1 or 0 for its label, or a cosine.

    Attributes:
        points: Shape (draws, tested).
        drawn: With other training texts, shape (samples, tested).
    """

    points: NDArray[Any]
    drawn: NDArray[Any]


Sets = Mapping[str, Sequence[Texts]]
"""Texts that rulers train on, by column; several draws of the same thing."""


@dataclass(frozen=True)
class Ruler:
    """A way to measure what texts teach.

    Attributes:
        name: First part of the names of its metrics.
        words: What it is.
        decides: Whether grades follow it. One that cast votes or ranked texts flatters them.
        train: Answers by column, from its tool, the case, the sets and the bootstrap samples.
        adds: What a gain by it says that the records added.
        required: Whether a release can be called good without it.
        labeled: Whether it measures texts with labels, or those without.
        number: Name of the release's own metric.
        least: Lowest value there is.
        loads: Whether ``stages/measure.py`` hands it a model, or measures it itself.
    """

    name: str
    words: str
    decides: bool
    train: Callable[[Any, Case, Sets, int], dict[str, Answers]]
    adds: str = "topics"
    required: bool = False
    labeled: bool = True
    number: str = "accuracy"
    least: int = 0
    loads: bool = False


@dataclass(frozen=True)
class Rival:
    """What stands in the place of the release.

    Attributes:
        name: Last part of the names of its metrics.
        words: What it is; ``{real_records}`` stands for the number of real records.
        free: Whether it needs no record.
        texts: Draws of the texts it trains on, from the case and the encoder that compares texts
            with label words, if there is one. None: it has no text.
    """

    name: str
    words: str
    free: bool
    texts: Callable[[Case, Embed | None], Sequence[Texts]] | None = None


def chosen(case: Case, embed: Embed | None) -> Sequence[Texts]:
    """The public texts of each label that lean most to it, as many as the release has."""
    if embed is None or not case.is_labeled or len(case.public) <= len(case.release):
        return []
    labels, toward = case.labels, directions(case, embed)
    picked: list[tuple[str, str]] = []
    for label, size in case.sizes.items():
        group = [pair for pair in case.public if pair[1] == label]
        if not group:
            continue
        scores = _unit(embed([text for text, _ in group])) @ toward.T  # (group, labels)
        place = labels.index(label)
        others = np.delete(scores, place, axis=1).max(axis=1) if len(labels) > 1 else 0.0
        best = np.argsort(-(scores[:, place] - others), kind="stable")[:size]
        picked += [group[i] for i in best]
    return [picked]


def directions(case: Case, embed: Embed) -> NDArray[np.float64]:
    """The direction of each label by its words and its examples: (labels, width), of length 1.

    The words' is the mean over wordings, as zero-shot classifiers of images do, so that no wording
    is chosen by test records. The mean of all labels is taken off: it says nothing of any.
    """
    labels, document = case.labels, case.document or "text"
    names = [case.names.get(label, label) for label in labels]
    forms = ("{name}", "{name}: {document}", "{document} about {name}")
    wordings = [[form.format(name=name, document=document) for name in names] for form in forms]
    # (wordings, labels, width)
    toward = _unit(np.sum([_unit(embed(wording)) for wording in wordings], axis=0))
    texts = [[text for text, label in case.examples if label == of] for of in labels]
    if sum(map(bool, texts)) > 1:  # one label's examples differ from no other's
        means = [_unit(_unit(embed(part)).sum(axis=0)[None])[0] if part else None for part in texts]
        middle = np.mean([mean for mean in means if mean is not None], axis=0)
        # A label without examples leans to none of the others'.
        toward = _unit(toward + [middle if mean is None else mean for mean in means])
    return _unit(toward - toward.mean(axis=0))


RIVALS = (
    Rival("chance", "the commonest label, always", free=True),
    Rival(
        "public", "as many texts of the public model", free=True,
        texts=lambda case, _: draws_of(case.public, case.sizes) if case.public else [],
    ),
    Rival(
        "examples", "your own examples", free=True,
        texts=lambda case, _: [case.examples] if case.examples else [],
    ),
    Rival(
        "everything", "all texts of the public model, and examples if you gave some", free=True,
        texts=lambda case, _: [[*case.examples, *case.public]] if case.public else [],
    ),
    Rival("chosen", "texts of the public model that lean to their label", free=True, texts=chosen),
    Rival(
        "zero_shot", "label words, and examples if you gave some, without a classifier", free=True
    ),
    Rival(
        "real", "{real_records} real records (as many of each label)", free=False,
        texts=lambda case, _: draws_of(case.known, case.sizes) if case.known else [],
    ),
    Rival(
        "all_real", "all real records", free=False,
        texts=lambda case, _: [case.known] if len(case.known) > len(case.release) else [],
    ),
)  # fmt: skip
FREE = tuple(rival.name for rival in RIVALS if rival.free)


def _by_vectors(embed: Embed, case: Case, sets: Sets, replicates: int) -> dict[str, Answers]:
    """Logistic regression over vectors; and the labels that words and examples name."""
    tested, truth = embed([text for text, _ in case.tested]), _labels(case.tested)
    features = {
        name: [(embed([text for text, _ in pairs]), _labels(pairs), tested) for pairs in draws]
        for name, draws in sets.items()
    }
    nearest = (_unit(tested) @ directions(case, embed).T).argmax(axis=1)
    named = _fixed(np.array(case.labels)[nearest] == truth)
    return fits(features, truth, replicates) | {"zero_shot": named}


def _by_words(_: None, case: Case, sets: Sets, replicates: int) -> dict[str, Answers]:
    """Logistic regression over words and word pairs."""
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
            words = vectorizer()
            # The vocabulary is that of all texts of the set in every bootstrap sample of it.
            train = words.fit_transform(texts)
            features[name].append((train, _labels(pairs), words.transform(tested)))
    return fits(features, _labels(case.tested), replicates)


def _by_nearness(embed: Embed, case: Case, sets: Sets, replicates: int) -> dict[str, Answers]:
    """The cosine of each real record to the nearest text."""
    rng, of = np.random.default_rng(_SEED), _unit(embed([text for text, _ in case.tested]))
    answers = {}
    for name, draws in sets.items():
        # More texts lie nearer whatever they say, so a rival has no more than the release.
        if max(map(len, draws)) > len(case.release):
            continue
        # (tested, texts), one for each draw
        cosines = [of @ _unit(embed([text for text, _ in pairs])).T for pairs in draws]
        points = np.array([cosine.max(axis=1) for cosine in cosines])
        drawn = []
        for k in range(replicates):
            cosine = cosines[k % len(cosines)]
            drawn.append(cosine[:, rng.integers(0, cosine.shape[1], cosine.shape[1])].max(axis=1))
        answers[name] = Answers(points, np.array(drawn) if drawn else points)
    return answers


ENCODER, WORDS, VOTER = "vectors", "words", "voter"
NEARNESS, SIMPLE = "nearness", "downstream"
RULERS = (
    Ruler(ENCODER, "an encoder that took no part", True, _by_vectors, required=True, loads=True),
    Ruler(WORDS, "words", True, _by_words, adds="words", required=True),
    Ruler(VOTER, "the encoder that took part, which flatters", False, _by_vectors, loads=True),
    Ruler(
        NEARNESS, "the cosine of a real record to the nearest text", True, _by_nearness,
        adds="nearness", required=True, labeled=False, number="cosine", least=-1, loads=True,
    ),
    # Measured of all records with labels, by evaluation/classifiers.py and images.py.
    Ruler(SIMPLE, "a simple classifier of words or pixels", False, lambda *_: {}, loads=True),
)  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """What was measured: a number and its 95% interval for each ruler and each column.

    Attributes:
        table: By (ruler, column). Columns are the release, rivals, the gain, and counts of records.
    """

    table: Mapping[tuple[str, str], Interval]

    @classmethod
    def read(cls, values: Mapping[str, float]) -> Scores:
        """From metrics by name."""
        table = {}
        for ruler in RULERS:
            for column in (RELEASE, *(rival.name for rival in RIVALS), GAIN, *COUNTS):
                name = _metric_name(ruler, column)
                if (value := values.get(name)) is not None:
                    ends = (values.get(f"{name}_{end}", value) for end in ("low", "high"))
                    table[ruler.name, column] = Interval(value, *ends)
        return cls(table)

    def __getitem__(self, place: tuple[str, str]) -> Interval:
        return self.table[place]

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self.table

    def value(self, ruler: str, column: str, default: float = 0.0) -> float:
        """A number without its interval."""
        return self.table[ruler, column].value if (ruler, column) in self.table else default

    @property
    def rulers(self) -> list[Ruler]:
        """Those that measured the release, in the order of RULERS: the first is the headline."""
        every = [ruler for ruler in RULERS if (ruler.name, RELEASE) in self.table]
        return [ruler for ruler in every if ruler.name != SIMPLE] or every

    @property
    def deciding(self) -> list[Ruler]:
        """Those that grades follow."""
        return [ruler for ruler in self.rulers if ruler.decides and (ruler.name, GAIN) in self]

    def rivals(self, ruler: str, free: bool | None = None) -> list[Rival]:
        """Rivals that a ruler measured; those that are free, or that are not."""
        return [
            one for one in RIVALS if (ruler, one.name) in self and free in (None, one.free)
        ]  # fmt: skip

    def best_free(self, ruler: str) -> Rival:
        """The free rival with the highest number."""
        return max(self.rivals(ruler, free=True), key=lambda one: self.value(ruler, one.name))

    def words_for(self, ruler: str, rival: Rival) -> str:
        """What a rival is called."""
        return rival.words.format(real_records=f"{self.value(ruler, 'real_records'):.0f}")

    def metrics(self, called: Mapping[str, str]) -> Iterator[Metric]:
        """The numbers, all internal.

        Args:
            called: What rulers are called, where that is more than their words.
        """
        for ruler in self.rulers:
            by = called.get(ruler.name, ruler.words)
            rivals = self.rivals(ruler.name)
            notes = {
                RELEASE: f"{ruler.number} by {by}, of the release",
                **{
                    one.name: f"{ruler.number} by {by}, of {self.words_for(ruler.name, one)}"
                    for one in rivals
                },
            }
            if (ruler.name, GAIN) in self:
                best = self.best_free(ruler.name).words
                notes[GAIN] = f"{ruler.number} over the best of what is free: {best}"
            for column, note in notes.items():
                metrics = ends(_metric_name(ruler, column), self[ruler.name, column], note)
                # One that does not decide was measured once: it has no interval.
                yield from metrics if ruler.decides else metrics[:1]
            for column, note in COUNTS.items():
                value = self.value(ruler.name, column)
                yield Metric(f"{ruler.name}.{column}", value, "internal", note)


def _metric_name(ruler: Ruler, column: str) -> str:
    return f"{ruler.name}.{ruler.number if column == RELEASE else column}"


def ends(name: str, interval: Interval, note: str) -> list[Metric]:
    """A metric, and its 95% interval."""
    return [
        Metric(name, interval.value, "internal", note),
        Metric(f"{name}_low", interval.low, "internal", "lower end of its 95% bootstrap interval"),
        Metric(f"{name}_high", interval.high, "internal", "upper end"),
    ]


def judge(
    case: Case,
    tools: Mapping[str, Any],
    *,
    chooser: Embed | None = None,
    replicates: int = REPLICATES,
) -> Scores:
    """The release and its rivals on held-out real records, by every ruler that has its tool.

    A bootstrap sample redraws the test records, and the training texts of the release and of free
    rivals, within each label. The interval therefore covers another release of the same size and
    other test records.

    Args:
        case: Texts and rivals.
        tools: What rulers measure with, by name: ``Embed``, or None for words.
        chooser: The vectors by which the rival ``chosen`` compares texts with label words. The one
            that cast the votes, so that neither side was chosen by its judge. None: an encoder.
        replicates: Bootstrap samples.
    """
    import sklearn.linear_model  # noqa: F401  # before the limit, which covers what is loaded
    from threadpoolctl import threadpool_limits

    tools = {**{one.name: None for one in RULERS if not one.loads}, **tools}
    chooser = chooser or tools.get(ENCODER) or tools.get(VOTER)
    table: dict[tuple[str, str], Interval] = {}
    with threadpool_limits(limits=1):  # with so few rows more threads only wait
        drawn = {one.name: one.texts(case, chooser) for one in RIVALS if one.texts is not None}
        sets = {RELEASE: [case.release], **{name: draws for name, draws in drawn.items() if draws}}
        for ruler in RULERS:
            if ruler.name not in tools or ruler.labeled != case.is_labeled:
                continue
            again = replicates if ruler.decides else 0
            answers = ruler.train(tools[ruler.name], case, sets, again)
            if ruler.labeled:
                truth = _labels(case.tested)
                commonest = Counter(truth.tolist()).most_common(1)[0][0]
                answers["chance"] = _fixed(truth == commonest)
            columns = intervals(answers, again, ruler.least)
            counts = len(case.tested), len(drawn["real"][0]) if drawn["real"] else 0
            columns |= {
                name: Interval(n, n, n)
                for name, n in zip(COUNTS, map(float, counts), strict=True)
            }  # fmt: skip
            table |= {(ruler.name, column): interval for column, interval in columns.items()}
    return Scores(table)


def intervals(
    answers: Mapping[str, Answers], replicates: int, least: int = 0
) -> dict[str, Interval]:
    """Means and the gain over the best free rival, on the same samples of test records."""
    rng = np.random.default_rng(_SEED)
    tested = answers[RELEASE].points.shape[1]
    # (samples, tested): one sample for all rivals, so that gains are on the same records
    rows = rng.integers(0, tested, (max(1, replicates), tested))
    points = {name: float(each.points.mean()) for name, each in answers.items()}
    samples = {
        name: np.array(
            [each.drawn[k % len(each.drawn)][picked].mean() for k, picked in enumerate(rows)]
        )
        for name, each in answers.items()
    }
    columns = {name: spread(points[name], samples[name], least=least) for name in answers}
    if free := [name for name in FREE if name in answers]:
        best = max(points[name] for name in free)
        over = samples[RELEASE] - np.max([samples[name] for name in free], axis=0)
        columns[GAIN] = spread(points[RELEASE] - best, over, least=least - 1)
    return columns


def _unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays zero."""
    exact = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.where(lengths > 0, lengths, 1.0))


def _labels(pairs: Texts) -> NDArray[np.str_]:
    return np.array([label for _, label in pairs], dtype=np.str_)


def _fixed(hits: NDArray[np.bool_]) -> Answers:
    return Answers(np.atleast_2d(hits), np.atleast_2d(hits))


def fits(
    sets: Mapping[str, Sequence[tuple[Any, NDArray[np.str_], Any]]],
    truth: NDArray[np.str_],
    replicates: int,
) -> dict[str, Answers]:
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
        # Intervals of real records cover the test records alone: no grade hangs on them.
        again = replicates if name == RELEASE or name in FREE else 0
        drawn = [models[k % len(models)].answers(rng) == truth for k in range(again)]
        answers[name] = Answers(points, np.array(drawn) if drawn else points)
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


_LIKE = {
    "auc_style": "how well length, marks and frequent words tell it from real texts: .5 not at all",
    "auc": "how well words tell it from real texts (area under the ROC curve): .5 not at all",
    "style_gain": "the AUC by style of the public model alone, less that of the release",
}
_OF = {"_public": " (texts of the public model alone)", "_real": " (other real texts)"}


def likeness_metrics(like: Mapping[str, Interval]) -> Iterator[Metric]:
    """The numbers of ``likeness``, all internal."""
    for name, interval in like.items():
        end = next((end for end in _OF if name.endswith(end)), "")
        note = _LIKE[name.removesuffix(end)] + _OF.get(end, "")
        yield from ends(f"likeness.{name}", interval, note)


_FOLDS = 5
_AUC_REPLICATES = 200
_STYLE_WORDS = 100
"""Words in most real texts, whose rates are features of style."""


def likeness(case: Case, *, replicates: int = _AUC_REPLICATES) -> dict[str, Interval]:
    """How far a classifier tells the texts from real ones.

    Every comparison has as many texts a side, and is also made for the public model's own texts and
    for other real records, by the names' ends ``_public`` and ``_real``.

    Returns:
        ``auc`` (by words), ``auc_style`` (by lengths, marks and the words in most real texts): area
        under the ROC curve out of fold, .5 where nothing tells them apart.
        ``style_gain``: ``auc_style`` of the public model's texts less that of the release. Empty
        below 20 texts a side.
    """
    ours = [text for text, _ in case.release]
    known, tested = ([text for text, _ in part] for part in (case.known, case.tested))
    sides = {"": ours, "_public": [text for text, _ in case.public], "_real": known}
    size = min(len(ours), len(tested))
    if size < 2 * _FOLDS * 2:
        return {}
    sides = {end: evenly_spaced(part, size) for end, part in sides.items() if len(part) >= 20}
    real = evenly_spaced(tested, size)
    counts = Counter(word for text in tested for word in sorted(set(words_of(text.lower()))))
    styled = [word for word, _ in counts.most_common(_STYLE_WORDS)]
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
    if "_public" in curves:
        mine, theirs = curves[""], curves["_public"]
        out["style_gain"] = spread(
            theirs.value - mine.value, theirs.samples - mine.samples, least=-1
        )
    return out


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
    both = [*first, *second]
    if not any(map(has_word, both)):
        return np.zeros((len(first), 1)), np.zeros((len(second), 1))
    rows = vectorizer().fit_transform(both)
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
