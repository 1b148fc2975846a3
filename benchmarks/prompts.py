"""Which prompt, guidance and temperature: InvisibleInk against its own public prompt.

    python benchmarks/prompts.py OUT.jsonl --data FOLDER --model MODEL [--sets agnews trec ...]
        [--prompts plain chat begun turn] [--guidance 3] [--temperature 1] [--seeds 1]
        [--public-only] [--examples SHOWN.jsonl] [--references 1]

FOLDER holds NAME.train.jsonl.gz and NAME.test.jsonl.gz of public benchmark sets; the set
``sample`` is made here. SHOWN holds public examples, or those of a finished release (set, label,
text): one of each label stands before both prompts. With several references a row, a row changes
where it would be gone with one, so that ``replace_one`` is what is paid for. Runs in memory with
seeded noise, without ledger or certificate: never a release. One JSON line a run; a run whose
settings are in OUT already is left out, so a killed search goes on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from utility import drawn

from privsyn.data.sample import LABELS, write_sample
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.evaluation.classifiers import downstream
from privsyn.evaluation.embeddings import mauve
from privsyn.evaluation.judge import fits, intervals
from privsyn.methods.base import PricingFacts
from privsyn.methods.invisible_ink.method import InvisibleInk
from privsyn.methods.invisible_ink.settings import InvisibleInkConfig
from privsyn.models.loading import load_embedder, load_language_model
from privsyn.models.model_identity import describe
from privsyn.models.rows import Subject
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tests.noise import SeededNoise

TESTED = 1000
"""Real test records at most."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Task:
    """A data set as the search reads it.

    Attributes:
        document: What a record is.
        column: Of the label.
        labels: The labels that are kept; what a prompt says for each.
        tokens: Of a text at most.
        texts: Per label.
    """

    document: str
    column: str
    labels: Mapping[str, str]
    tokens: int
    texts: int


def _same(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


TASKS = {
    "sample": Task("message from a patient to a clinic", "label", _same(*LABELS), 40, 16),
    "agnews": Task("news item", "label", _same("World", "Sports", "Business", "Sci/Tech"), 40, 20),
    "trec": Task(
        "trivia question",
        "label",
        {
            "ABBR": "what an abbreviation means",
            "DESC": "a description, a reason or a definition",
            "ENTY": "a thing, an animal, a word or another entity",
            "HUM": "a person or a group",
            "LOC": "a place",
            "NUM": "a number, a date or a quantity",
        },
        20,
        13,
    ),
    "banking77": Task(
        "question of a customer to a bank",
        "label",
        {
            label: label.replace("_", " ")
            for label in (
                "card_arrival", "card_payment_fee_charged", "transfer_not_received_by_recipient",
                "declined_cash_withdrawal", "request_refund", "exchange_rate",
                "lost_or_stolen_card", "top_up_failed", "verify_my_identity", "change_pin",
            )
        },
        24,
        8,
    ),
    "mit_g": Task(
        "spoken question about a film",
        "answer",
        _same("comedy", "animated", "horror", "romantic comedy", "musical", "action"),
        28,
        13,
    ),
}  # fmt: skip

PROMPTS: Mapping[str, Mapping[str, Any]] = {
    "label": {  # the plain prompt as it was
        "private": "Label: {label}\nText: {reference}\n\nLabel: {label}\nText:",
        "public": "Label: {label}\nText:",
    },
    "plain": {
        "private": "The following is a {document}.\n\nTopic: {label}\nText: {reference}\n\n"
        "Topic: {label}\nText:",
        "public": "The following is a {document}.\n\nTopic: {label}\nText:",
    },
    "tiny": {  # the embedded model's own
        "private": "<|start|>Text: {reference}<|end|>Text:",
        "public": "<|start|>Text:",
    },
    "tiny_topic": {  # in the form it was trained on
        "private": "<|start|>Topic: {label}\nText: {reference}<|end|>Topic: {label}\nText:",
        "public": "<|start|>Topic: {label}\nText:",
    },
    "old": {  # the chat prompt as it was
        "private": "Write one new text of the same kind as the example.\nLabel: {label}\n"
        "Example: {reference}\n\nAnswer with the new text alone.",
        "public": "Write one new text of the same kind as the example.\nLabel: {label}\n"
        "Example: \n\nAnswer with the new text alone.",
    },
    "chat": {
        "private": "Write one {document}.\nTopic: {label}\nExample: {reference}\n\n"
        "Answer with the {document} alone.",
        "public": "Write one {document}.\nTopic: {label}\n\nAnswer with the {document} alone.",
    },
    "begun": {
        "private": "Write one {document}.\nTopic: {label}\nExample: {reference}\n"
        "[assistant]\nTopic: {label}\nText:",
        "public": "Write one {document}.\nTopic: {label}\n[assistant]\nTopic: {label}\nText:",
    },
    "turn": {
        "private": "Write one {document}. Topic: {label}\n[assistant]\n{reference}\n[user]\n"
        "Write one more {document}. Topic: {label}",
        "public": "Write one {document}. Topic: {label}",
    },
    "turn begun": {
        "private": "Write one {document}.\nTopic: {label}\n[assistant]\nTopic: {label}\n"
        "Text: {reference}\n[user]\nOne more.\n[assistant]\nTopic: {label}\nText:",
        "public": "Write one {document}.\nTopic: {label}\n[assistant]\nTopic: {label}\nText:",
    },
}


def prompt_of(name: str, task: Task, examples: Mapping[str, str]) -> dict[str, str]:
    """A prompt of the search for one data set, behind an example of each label."""
    form = dict(PROMPTS[name])
    shown = "".join(f"Topic: {task.labels[of]}\nText: {text}\n\n" for of, text in examples.items())
    for side in ("private", "public"):
        form[side] = form[side].replace("{document}", task.document)
        form[side] = form[side].replace("Topic:", f"{shown}Topic:", 1)
        if name in ("old", "chat", "begun", "turn", "turn begun"):
            form[side] = f"[user]\n{form[side]}"
    return form


def examples_of(path: Path | None, name: str) -> dict[str, str]:
    """The first example of each label of a set."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path else []:
        row = json.loads(line)
        if row["set"] == name:
            found.setdefault(row["label"], " ".join(row["text"].split()))
    return found


def read(folder: Path, name: str, split: str) -> list[Pair]:
    """(text, label) of the records with one of the task's labels."""
    task = TASKS[name]
    if name == "sample":
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "sample.jsonl"
            write_sample(path)
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        held = {unit for unit in {row["patient_id"] for row in rows} if int(unit[-1]) % 5 == 0}
        rows = [row for row in rows if (row["patient_id"] in held) == (split == "test")]
    else:
        with gzip.open(folder / f"{name}.{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
    pairs = [(row["text"], str(row[task.column])) for row in rows]
    return [(text, label) for text, label in pairs if label in task.labels]


def generate(
    cfg: InvisibleInkConfig,
    models: ModelsConfig,
    model: Any,
    task: Task,
    train: Sequence[Pair],
    epsilon: float,
    seed: int,
    references: int = 1,
) -> list[Pair]:
    """Synthetic (text, label) by InvisibleInk; of no records by its public prompt alone.

    ``batch_size`` counts rows; each holds ``references`` records, joined as the plain prompt is.
    """
    method = InvisibleInk()
    # A row has room for all its references.
    method.prompt = lambda cfg: (cfg.prompt.template, task.tokens * references, cfg.max_tokens)
    subject = Subject(descriptions=tuple(task.labels.items()))
    cfg = method.resolve(cfg, {"language": describe(models)}, subject)
    labels = list(task.labels)
    # privacy: of a row with other references one less is another row, not none: 2 C / B
    adjacency = Adjacency.REPLACE_NULL if references == 1 else Adjacency.REPLACE_ONE
    plan = method.calibrate(
        cfg, Guarantee(epsilon, 1e-6), PricingFacts(adjacency, PrivacyUnit(), tuple(labels))
    )
    rng = random.Random(seed)
    held: dict[tuple[str | None, int], list[str]] = {}
    wanted = cfg.batch_size * references * cfg.texts_per_label
    for label in labels:  # as many records as the divisor stands for, where there are so many
        own = [text for text, other in train if other == label]
        for text in rng.sample(own, min(wanted, len(own))):
            held.setdefault((label, rng.randrange(cfg.texts_per_label)), []).append(text)
    for (label, _), texts in held.items():
        between = f"\n\nTopic: {task.labels[label]}\nText: " if label is not None else ""
        texts[:] = [
            between.join(texts[start : start + references])
            for start in range(0, len(texts), references)
        ]
    return drawn(method, cfg, plan, held, labels, model, SeededNoise(seed))


class Bench:
    """Vectors of the real records, and what a set of texts is worth against them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._embedder = load_embedder(ModelsConfig(), PerformanceConfig())
        self.train = cache(lambda name: read(folder, name, "train"))
        self._test = cache(self._embedded_test)

    def _embedded_test(self, name: str) -> tuple[list[Pair], Any]:
        test = read(self._folder, name, "test")
        test = random.Random(0).sample(test, min(TESTED, len(test)))
        return test, self._labeled(test)

    def _labeled(self, pairs: Sequence[Pair]) -> tuple[Any, Any]:
        vectors = self._embedder.embed([text for text, _ in pairs])
        return np.asarray(vectors), np.array([label for _, label in pairs])

    def worth(self, name: str, made: Sequence[Pair]) -> dict[str, Any]:
        """Accuracy by vectors and by TF-IDF, MAUVE, words a text."""
        test, (vectors, truth) = self._test(name)
        own, labels = self._labeled(made)
        found = intervals(fits({"release": [(own, labels, vectors)]}, truth, 0), 0)
        by_words = downstream(*zip(*made, strict=True), *zip(*test, strict=True))
        count = min(len(own), len(vectors))
        return {
            "accuracy": round(found["release"].value, 4),
            "tfidf": round(by_words[0].value, 4),
            "mauve": round(mauve(own[:count], vectors[:count]), 4),
            "words": round(float(np.mean([len(text.split()) for text, _ in made])), 1),
        }


def main() -> None:
    """Append one JSON line a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--sets", nargs="+", default=list(TASKS))
    parser.add_argument("--prompts", nargs="+", default=["plain", "chat", "begun", "turn"])
    parser.add_argument("--guidance", nargs="+", type=float, default=[3.0])
    parser.add_argument("--temperature", nargs="+", type=float, default=[1.0])
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--public-only", action="store_true")
    parser.add_argument("--examples", type=Path, help="JSONL of set, label and public text")
    parser.add_argument("--references", type=int, default=1, help="records a row")
    parser.add_argument("--real", action="store_true", help="as many real records instead")
    arguments = parser.parse_args()
    models = ModelsConfig(language=arguments.model, dtype=arguments.dtype)
    model = None if arguments.real else load_language_model(models, PerformanceConfig())
    bench = Bench(arguments.data)
    done = set()
    if arguments.out.exists():
        for line in arguments.out.read_text(encoding="utf-8").splitlines():
            done.add(json.dumps(json.loads(line)["run"], sort_keys=True))
    forms = ["real"] if arguments.real else arguments.prompts
    guidances = [1.0] if arguments.public_only or arguments.real else arguments.guidance
    for seed in arguments.seeds:
        for form in forms:
            for guidance in guidances:
                for temperature in arguments.temperature:
                    for name in arguments.sets:
                        run = {
                            "set": name, "prompt": form, "guidance": guidance,
                            "temperature": temperature, "seed": seed, "top_k": arguments.top_k,
                            "model": Path(arguments.model).name, "batch": arguments.batch,
                            "epsilon": 0.0 if arguments.public_only else arguments.epsilon,
                        }  # fmt: skip
                        if arguments.examples is not None:
                            run["examples"] = arguments.examples.name
                        if arguments.references > 1:
                            run["references"] = arguments.references
                        if json.dumps(run, sort_keys=True) in done:
                            continue
                        task, start = TASKS[name], time.process_time()
                        train = bench.train(name)
                        if arguments.real:
                            count = task.texts * len(task.labels)
                            made = random.Random(seed).sample(train, count)
                        else:
                            cfg = InvisibleInkConfig(
                                batch_size=arguments.batch, guidance=guidance,
                                temperature=temperature, texts_per_label=task.texts,
                                max_tokens=task.tokens,
                                top_k=arguments.top_k, prompt=prompt_of(
                                    form, task, examples_of(arguments.examples, name)
                                ),
                            )  # fmt: skip
                            records = [] if arguments.public_only else train
                            made = generate(
                                cfg, models, model, task, records, arguments.epsilon, seed,
                                arguments.references,
                            )  # fmt: skip
                        seconds = round(time.process_time() - start, 1)
                        found = bench.worth(name, made) | {"cpu": seconds}
                        shown = random.Random(seed).sample(made, 10)
                        if arguments.real:
                            shown = []
                        with arguments.out.open("a", encoding="utf-8") as out:
                            line = {"run": run, "found": found, "shown": shown}
                            out.write(json.dumps(line) + "\n")
                        print(name, form, guidance, temperature, seed, found, flush=True)


if __name__ == "__main__":
    main()
