"""Rows of training tokens from folders of public text.

The model must continue a reference with a text of the same kind, so it is trained on *episodes*:
a few passages that belong together, one after the other,

    <|start|>Text: one<|end|>Text: two<|end|>

in rows of 513 tokens, several episodes a row. Every episode's first passage trains the prompt
without a reference. What belongs together: passages of one topic from different documents
(neighbours in a space of TF-IDF and SVD), passages of one document, texts of one label, questions
and answers of one kind, dialogues of one book. All passages of an episode have one length class,
and some share a surface style or a header.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

ROW = 513
"""Tokens of a row: 512 predictions."""

LENGTHS = ((20, 90), (90, 280), (280, 800), (800, 1700))
"""Characters of a passage, by length class."""

LENGTH_SHARES = (0.16, 0.46, 0.28, 0.10)
KINDS = {"neighbours": 0.44, "document": 0.35, "label": 0.07, "question": 0.06, "dialogue": 0.08}
STYLES = {"lower": 0.30, "dateline": 0.25, "json": 0.17, "bullets": 0.13, "bare": 0.15}
STYLED, SHUFFLED, DUPLICATED = 0.28, 0.40, 0.05
HEADERS = {"none": 0.62, "topic": 0.18, "keywords": 0.20}
HELD_OUT = 0.01
"""Share of the documents that no training row holds."""

NEIGHBOUR_POOL = 160_000
"""Passages of one length class among which neighbours are sought."""

_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]?[A-Z0-9])")  # noqa: RUF001
_QUOTED = re.compile(r"[“\"]([^“”\"]{8,240})[”\"]")
_UTTERANCE = re.compile(r"[A-Z][^\n]*[.,!?—]")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]{3,}")
_PLACES = (
    "LONDON PARIS TOKYO WASHINGTON MOSCOW BERLIN SYDNEY DELHI CAIRO ROME NAIROBI GENEVA".split()
)
_COMMON = frozenset(
    "that with from this which were have been their also they more other some into such when there "
    "after first about only most over between than while these would during through many could "
    "where used both under being then will made part them what your known said time each".split()
)


@dataclass(frozen=True)
class Passage:
    """A stretch of one document: its text, the document's number and title."""

    text: str
    document: int
    title: str


@dataclass
class Pool:
    """All passages, by what they can be put together for."""

    by_length: list[list[Passage]] = field(default_factory=lambda: [[] for _ in LENGTHS])
    runs: list[list[list[Passage]]] = field(default_factory=lambda: [[] for _ in LENGTHS])
    labelled: dict[str, list[Passage]] = field(default_factory=lambda: defaultdict(list))
    questions: dict[str, list[Passage]] = field(default_factory=lambda: defaultdict(list))
    dialogues: list[list[str]] = field(default_factory=list)


def documents(folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Every object of every ``*.jsonl.gz`` of the folder, with the name of its file."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield path.name, json.loads(line)


def is_held_out(identity: str) -> bool:
    """Whether a document is kept for evaluation, by a hash of its id: the same in every run."""
    digest = hashlib.blake2b(identity.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < HELD_OUT * 2**64


def _pieces(paragraph: str, shortest: int, longest: int) -> Iterator[str]:
    """Consecutive sentences of a paragraph in pieces of ``shortest`` to ``longest`` characters."""
    piece = ""
    for sentence in _SENTENCE.split(paragraph):
        piece = f"{piece} {sentence}".strip()
        if len(piece) > longest:
            piece = sentence if len(sentence) <= longest else ""
        if len(piece) >= shortest:
            yield piece
            piece = ""


def gather(folder: Path, held_out: bool, seed: int) -> Pool:
    """Cut the folder's documents into passages. A document with a label is one passage itself."""
    rng, pool = random.Random(seed), Pool()
    for number, (file, record) in enumerate(documents(folder)):
        text, title = str(record["text"]), str(record.get("title", ""))
        if (is_held_out(str(record["id"])) or ".test." in file) != held_out:
            continue
        if text.startswith("Question:"):
            kind = " ".join(text.split()[1:3])
            pool.questions[kind].append(Passage(text, number, title))
            continue
        if "label" in record:
            pool.labelled[f"{file}/{record['label']}"].append(Passage(text, number, title))
            continue
        quotes = [quote for quote in _QUOTED.findall(text) if _UTTERANCE.fullmatch(quote)]
        pool.dialogues.extend([quotes] if len(quotes) >= 8 else [])
        paragraphs = [line for line in text.split("\n") if len(line) >= LENGTHS[0][0]]
        start = 0
        while start < len(paragraphs):
            size, stop = 0, start
            while stop < len(paragraphs) and size < 2500:
                size, stop = size + len(paragraphs[stop]), stop + 1
            kind = rng.choices(range(4), LENGTH_SHARES)[0]
            run = [
                Passage(piece, number, title)
                for paragraph in (
                    [" ".join(paragraphs[start:stop])] if kind == 3 else paragraphs[start:stop]
                )
                for piece in _pieces(paragraph, *LENGTHS[kind])
            ]
            pool.by_length[kind].extend(run)
            if len(run) > 1:
                pool.runs[kind].append(run)
            start = stop
    return pool


class Neighbours:
    """Passages of one length class that share a topic, from different documents."""

    def __init__(self, passages: list[Passage], rng: random.Random) -> None:
        """Place a sample of the passages by TF-IDF and SVD and group them into topics."""
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize

        typical = sum(len(passage.text) for passage in passages) / len(passages)
        self.nearest = 0.9 if typical < LENGTHS[0][1] else 0.6
        self.passages = rng.sample(passages, min(len(passages), NEIGHBOUR_POOL))
        texts = [passage.text for passage in self.passages]
        few = len(texts) < 1000
        words = TfidfVectorizer(
            sublinear_tf=True,
            stop_words="english",
            max_features=30_000,
            min_df=1 if few else 4,
            dtype=np.float32,
        ).fit_transform(texts)
        width = max(2, min(64, words.shape[1] - 1, len(texts) - 1))
        seed = rng.randrange(2**31)
        self.places = normalize(
            TruncatedSVD(width, n_iter=2, random_state=seed).fit_transform(words)
        )
        topics = max(1, len(texts) // 300)
        self.topic = MiniBatchKMeans(
            topics, batch_size=8192, n_init=1, max_iter=8, random_state=seed
        ).fit_predict(self.places)
        self.members = defaultdict(list)
        for index, topic in enumerate(self.topic):
            self.members[int(topic)].append(index)

    def around(self, rng: random.Random, number: int) -> list[Passage]:
        """A passage, and others of its topic: more often than not its nearest, else any of it."""
        anchor = rng.randrange(len(self.passages))
        members = self.members[int(self.topic[anchor])]
        if rng.random() < self.nearest:
            near = self.places[members] @ self.places[anchor]
            order = [members[i] for i in np.argsort(-near)[: 4 * number]]
        else:
            order = rng.sample(members, min(len(members), 4 * number))
        seen, chosen = {self.passages[anchor].document}, [self.passages[anchor]]
        for index in order:
            passage = self.passages[index]
            if passage.document not in seen and len(chosen) < number:
                seen.add(passage.document)
                chosen.append(passage)
        return chosen


def _style(text: str, style: str, place: str) -> str:
    match style:
        case "lower":
            return text.lower()
        case "dateline":
            return f"{place} - {text}"
        case "json":
            return json.dumps({"text": text}, ensure_ascii=False)
        case "bullets":
            return "\n".join(f"- {part}" for part in _SENTENCE.split(text))
        case "bare":
            return re.sub(r"[^\w\s']", "", text).lower()
    return text


def _keywords(text: str, rng: random.Random) -> str:
    words = [w for w in dict.fromkeys(_WORD.findall(text)) if w.lower() not in _COMMON]
    return ", ".join(rng.sample(words, min(len(words), rng.randint(2, 5))))


def _drop_words(text: str, rng: random.Random) -> str:
    share = rng.uniform(0.05, 0.3)
    return " ".join(word for word in text.split() if rng.random() > share)


class Episodes:
    """Draws episodes from a pool of passages."""

    def __init__(self, pool: Pool, rng: random.Random) -> None:
        """Find the neighbours; an empty kind of episode gives its share to the others."""
        self.pool, self.rng = pool, rng
        self.neighbours = {
            length: Neighbours(passages, rng)
            for length, passages in enumerate(pool.by_length)
            if len(passages) > 20
        }
        self.with_runs = [length for length, runs in enumerate(pool.runs) if runs]
        self.labels = sorted(name for name, rows in pool.labelled.items() if len(rows) > 4)
        self.label_weights = [len(pool.labelled[name]) ** 0.5 for name in self.labels]
        self.asked = sorted(name for name, rows in pool.questions.items() if len(rows) > 2)
        has = {
            "neighbours": bool(self.neighbours),
            "document": bool(self.with_runs),
            "label": bool(self.labels),
            "question": bool(self.asked),
            "dialogue": bool(pool.dialogues),
        }
        self.kinds = [kind for kind in KINDS if has[kind]]
        if not self.kinds:
            raise SystemExit("the folder holds too little text: no two passages belong together")

    def _length(self, lengths: list[int]) -> int:
        return self.rng.choices(lengths, [LENGTH_SHARES[i] for i in lengths])[0]

    def _passages(self, kind: str) -> list[Passage]:
        rng = self.rng
        number = rng.randint(3, 16)
        if kind == "neighbours":
            return self.neighbours[self._length(list(self.neighbours))].around(rng, number)
        if kind == "document":
            run = rng.choice(self.pool.runs[self._length(self.with_runs)])
            first = rng.randrange(len(run) - 1)
            part = run[first : first + number]
            return rng.sample(part, len(part)) if rng.random() < SHUFFLED else part
        if kind == "label":
            rows = self.pool.labelled[rng.choices(self.labels, self.label_weights)[0]]
            return rng.sample(rows, min(len(rows), number))
        if kind == "question":
            rows = self.pool.questions[rng.choice(self.asked)]
            longest = rng.choice(LENGTHS)[1]
            return [
                Passage(row.text[:longest].rsplit(" ", 1)[0], row.document, row.title)
                if len(row.text) > longest
                else row
                for row in rng.sample(rows, min(len(rows), 6))
            ]
        quotes, turns = rng.choice(self.pool.dialogues), rng.randint(2, 4)
        first = rng.randrange(len(quotes) - 3)
        return [
            Passage("\n".join(f"{'AB'[i % 2]}: {q}" for i, q in enumerate(part)), -1, "")
            for part in (quotes[i : i + turns] for i in range(first, len(quotes), turns))
            if len(part) > 1
        ]

    def draw(self) -> list[str]:
        """One episode: the strings between its ``<|start|>`` and ``<|end|>`` tokens, in order."""
        rng = self.rng
        kind = rng.choices(self.kinds, [KINDS[k] for k in self.kinds])[0]
        passages = self._passages(kind)
        texts = [passage.text for passage in passages]
        if rng.random() < DUPLICATED:
            texts = [texts[0]] + [_drop_words(texts[0], rng) for _ in range(rng.randint(1, 3))]
            passages = passages[:1] * len(texts)
        if kind not in ("question", "dialogue") and rng.random() < STYLED:
            style = rng.choices(list(STYLES), list(STYLES.values()))[0]
            texts = [_style(text, style, rng.choice(_PLACES)) for text in texts]
        header = rng.choices(list(HEADERS), list(HEADERS.values()))[0]
        if header == "keywords" and kind != "dialogue":
            return [f"Keywords: {_keywords(text, rng)}\nText: {text}" for text in texts]
        if header == "topic" and all(passage.title for passage in passages):
            return [
                f"Topic: {p.title}\nText: {text}" for p, text in zip(passages, texts, strict=True)
            ]
        return [f"Text: {text}" for text in texts]


def _fitting(texts: list[str], characters: int) -> int:
    """How many of the texts surely fill so many characters: the others need no tokens."""
    sizes = np.cumsum([len(text) for text in texts])
    return int(np.searchsorted(sizes, characters)) + 1


def rows(episodes: Episodes, tokenizer: Tokenizer, number: int) -> Iterator[np.ndarray]:
    """``number`` rows of :data:`ROW` token ids: each begins with ``<|start|>``, the last is cut."""
    start, end = tokenizer.token_to_id("<|start|>"), tokenizer.token_to_id("<|end|>")
    rng, row, made = episodes.rng, [], 0
    while made < number:
        drawn = [(rng.randint(120, 340), episodes.draw()) for _ in range(256)]
        drawn = [(room, texts[: _fitting(texts, 7 * room)]) for room, texts in drawn]
        encoded = iter(tokenizer.encode_batch([text for _, texts in drawn for text in texts]))
        for size, texts in drawn:
            room, ids = len(row) + size, [start]
            for position in range(len(texts)):
                passage = next(encoded).ids
                if position == 0 or len(row) + len(ids) < room:
                    ids += [*passage, end]
            row += ids
            if len(row) >= ROW:
                yield np.asarray(row[:ROW], dtype=np.uint16)
                made += 1
                row = []
                if made == number:
                    return


def train_tokenizer(folder: Path, entries: int, characters: int = 45_000_000) -> Tokenizer:
    """Byte-level BPE with digits apart, from a sample of every file of the folder."""
    from tokenizers import decoders, models, pre_tokenizers, trainers

    files = len(list(folder.glob("*.jsonl.gz")))

    def sample() -> Iterator[str]:
        taken: dict[str, int] = defaultdict(int)
        for file, record in documents(folder):
            if taken[file] < characters // files and not is_held_out(str(record["id"])):
                taken[file] += len(str(record["text"]))
                yield str(record["text"])

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        sample(),
        trainers.BpeTrainer(
            vocab_size=entries,
            special_tokens=["<|start|>", "<|end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def prepare(folder: Path, work: Path, tokenizer: Tokenizer, number: int, seed: int) -> None:
    """Write ``train.npy`` (``number`` rows) and ``held_out.npy`` into ``work``.

    The held-out rows are built in the same way from the documents that :func:`is_held_out` names.
    """
    work.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(work / "tokenizer.json"))
    for name, held_out, count in (("held_out", True, min(400, number)), ("train", False, number)):
        pool = gather(folder, held_out, seed)
        sizes = ", ".join(str(len(passages)) for passages in pool.by_length)
        print(f"{name}: passages by length class {sizes}", flush=True)
        episodes = Episodes(pool, random.Random(seed + held_out))
        partial = work / f"{name}.partial.npy"
        table = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint16, shape=(count, ROW))
        for index, row in enumerate(rows(episodes, tokenizer, count)):
            table[index] = row
            if (index + 1) % 5000 == 0:
                print(f"{name}: {index + 1} of {count} rows", flush=True)
        table.flush()
        partial.replace(work / f"{name}.npy")
