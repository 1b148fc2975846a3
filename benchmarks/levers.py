"""Texts beyond the votes of private evolution: what more of them teach at the same epsilon.

    python benchmarks/levers.py STATE --write public=40 adapted=40 further=80
    python benchmarks/levers.py STATE --curve 20 40 100

The invented messages, SmolLM2, epsilon 3, in memory: no ledger, no certificate. A pool is so many
texts a label, kept under STATE. The noisy table that adapts the writer is drawn once; means and
votes are drawn three times over the same pools, so +- holds nothing of what another pool varies by.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from privsyn.data.sample import LABELS, write_sample
from privsyn.data.settings import TextExample
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.histograms import LATTICE, histogram
from privsyn.dp.noise import OpenDPNoise
from privsyn.evaluation.classifiers import vectorizer
from privsyn.evaluation.embeddings import EmbeddedOnce
from privsyn.methods.base import PricingFacts
from privsyn.methods.private_evolution.adaptation import Adaptation, TokenTable
from privsyn.methods.private_evolution.mechanism import calibrate
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.methods.private_evolution.votes import Grid, Voters, exact_sums, labels_of
from privsyn.models.language.text_variation import TextConfig, TextVariation
from privsyn.models.loading import (
    describe_role,
    load_embedder,
    load_measuring_encoder,
    load_text_model,
)
from privsyn.models.rows import Subject
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.section import SMALL

VOTED = 20
RECORDS, TESTED = 960, 800
DRAWS = range(3)
Groups = Sequence[Sequence[str]]


class Bench:
    """Records, models and pools."""

    def __init__(self, state: Path) -> None:
        self.folder = state
        state.mkdir(parents=True, exist_ok=True)
        self.train, self.test = records(state / "records.jsonl")
        self.labels = [*self.train]
        self.units = [[f"{of}/{i}" for i in range(len(group))] for of, group in self.train.items()]
        self.models, self.performance = ModelsConfig(), PerformanceConfig()
        settings = PrivateEvolutionConfig(**PrivateEvolutionConfig.presets[SMALL])
        facts = PricingFacts(Adjacency.ADD_REMOVE, PrivacyUnit(), tuple(self.labels))
        self.mechanism = calibrate(settings, Guarantee(3.0, 1e-6), facts)
        self.votes = EmbeddedOnce(lambda: load_embedder(self.models, self.performance))
        self.judge = EmbeddedOnce(lambda: load_measuring_encoder(None, self.performance))

    def pool(self, name: str) -> dict[str, list[str]]:
        """What is written of a pool, by label."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            return {of: [] for of in self.labels}
        return json.loads(file.read_text("utf-8"))

    def write(self, name: str, count: int) -> None:
        """Write a pool until it has ``count`` texts a label: by the table, but for the public."""
        model = load_text_model(self.models, self.performance)
        dataset = yaml.safe_load(Path("params.yaml").read_text("utf-8"))["dataset"]
        prompts = TextConfig(max_tokens=48).resolved(
            describe_role(self.models, "text").template_default,
            Subject(
                dataset["document"],
                examples=tuple(TextExample(**one) for one in dataset["examples"]),
            ),
        )
        ratios = None if name == "public" else self.table(model).by_label
        writer, texts = TextVariation(prompts, model, log_ratios=ratios), self.pool(name)
        for label in self.labels:
            if (missing := count - len(texts[label])) > 0:
                texts[label] += writer.random(missing, label)
                (self.folder / f"{name}.json").write_text(json.dumps(texts), "utf-8")
                print(name, label, len(texts[label]), flush=True)

    def table(self, model: Any) -> Adaptation:
        """The noisy table of the records beside the public pool, drawn once."""
        file = self.folder / "table.json"
        if not file.exists():
            public, private = (
                [[model.tokens(text) for text in group] for group in groups.values()]
                for groups in (self.pool("public"), self.train)
            )
            table, noise = TokenTable.of(public), self.mechanism.words
            noisy = noise.draw(table.exact_sums(private, self.units, 1, LATTICE), OpenDPNoise())
            ratios = np.round(table.log_ratios(noisy, noise.sigma, LATTICE), 4)
            file.write_bytes(Adaptation(tuple(self.labels), table.tokens, ratios).to_json())
        return Adaptation.of_json(file.read_bytes())

    def moved(self, groups: Groups, least: int) -> list[list[str]]:
        """Texts at their nearest noisy means, by one draw of these, ``least`` a label or more."""
        every = [text for group in groups for text in group]
        vectors, real = self.votes.embed(every), [*map(self.votes.embed, self.train.values())]
        grid, units = Grid.around(vectors), [unit for group in self.units for unit in group]
        sums = exact_sums(real, units, grid, 1, LATTICE)
        noisy = self.mechanism.means.draw(sums, OpenDPNoise())
        of = labels_of(noisy, vectors, grid, [least] * len(groups))
        return [[every[i] for i in np.flatnonzero(of == k)] for k in range(len(groups))]

    def voted(self, groups: Groups) -> list[list[str]]:
        """VOTED texts a label by one draw of means and votes."""
        groups = self.moved(groups, VOTED)
        firsts = np.cumsum([0, *map(len, groups)])
        bins = [
            first + Voters(self.votes.embed(real)).nearest(self.votes.embed(group))
            for first, real, group in zip(firsts, self.train.values(), groups, strict=False)
        ]
        units = [unit for group in self.units for unit in group]
        exact = histogram(np.concatenate(bins), units, firsts[-1], 1, LATTICE)
        noisy = np.split(self.mechanism.histogram.draw(exact, OpenDPNoise()), firsts[1:-1])
        best = [np.argsort(-row, kind="stable")[:VOTED] for row in noisy]
        return [[group[i] for i in places] for group, places in zip(groups, best, strict=True)]

    def some(self, groups: Groups, count: int, seed: int) -> list[list[str]]:
        """``count`` texts of each group, or all there are."""
        rng = random.Random(seed)
        return [rng.sample(group, min(count, len(group))) for group in groups]

    def row(self, arm: str, draws: Sequence[Groups]) -> None:
        """Print what texts teach: the mean of some draws and its standard error."""
        scores = np.array([self.taught(groups) for groups in draws])
        errors = scores.std(axis=0, ddof=1) / len(scores) ** 0.5
        pairs = zip(scores.mean(axis=0), errors, strict=True)
        cells = [f"{mean:.3f} +- {error:.3f}" for mean, error in pairs]
        print(arm, *cells, flush=True)

    def taught(self, groups: Groups) -> list[float]:
        """Accuracy on test records by the encoder, by words and by characters."""
        texts = [text for group in groups for text in group]
        labels = [of for of, group in zip(self.labels, groups, strict=True) for _ in group]
        tested = [text for group in self.test.values() for text in group]
        truth = np.array([of for of, group in self.test.items() for _ in group])
        characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
        pairs = [(self.judge.embed(texts), self.judge.embed(tested))]
        for ruler in (vectorizer(), characters):
            pairs.append((ruler.fit_transform(texts), ruler.transform(tested)))
        return [
            float(np.mean(_fitted(own, labels).predict(other) == truth)) for own, other in pairs
        ]


def _fitted(rows: Any, labels: Sequence[str]) -> Any:
    return LogisticRegression(C=10, max_iter=2000).fit(rows, labels)


def records(file: Path) -> list[dict[str, list[str]]]:
    """Train and test messages by label: one of a patient in training, others' to test on."""
    write_sample(file)
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    rows.sort(key=lambda row: hashlib.sha256(f"x{row['patient_id']}".encode()).hexdigest())
    first = {row["patient_id"]: row for row in reversed(rows)}
    units = list(dict.fromkeys(row["patient_id"] for row in rows))[:RECORDS]
    held = set(units)
    test = [row for row in rows if row["patient_id"] not in held][:TESTED]
    parts = [first[unit] for unit in units], test
    return [
        {of: [row["text"] for row in part if row["label"] == of] for of in LABELS} for part in parts
    ]


def main() -> None:
    """Write pools, or print what more texts teach beside public and real ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--write", nargs="*", default=[], metavar="POOL=COUNT")
    parser.add_argument("--curve", nargs="*", default=[], type=int, metavar="TEXTS")
    arguments = parser.parse_args()
    bench = Bench(arguments.state)
    for name, _, count in (one.partition("=") for one in arguments.write):
        bench.write(name, int(count))
    if not arguments.curve:
        return
    public, adapted, further = (
        [*bench.pool(name).values()] for name in ("public", "adapted", "further")
    )
    candidates = [old + new for old, new in zip(public, adapted, strict=True)]
    voted = [bench.voted(candidates) for _ in DRAWS]
    for size in arguments.curve:
        more = [bench.some(further, size - VOTED, seed) for seed in DRAWS]
        if size > VOTED:
            more = [bench.moved(groups, size - VOTED) for groups in more]
        both = [
            [old + new for old, new in zip(*pair, strict=True)]
            for pair in zip(voted, more, strict=True)
        ]
        bench.row(f"{size} of a release", both)
        for name, groups in (("public", public), ("real", [*bench.train.values()])):
            if size <= min(map(len, groups)):
                bench.row(f"{size} {name}", [bench.some(groups, size, seed) for seed in DRAWS])


if __name__ == "__main__":
    main()
