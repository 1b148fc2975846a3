"""Make the shipped vocabulary from public text: frequent words, and phrases that belong together.

    python -m tools.vocabulary PUBLIC_FOLDER privsyn/data/vocabulary.txt.gz

A word counts once a document (articles and novels are cut into passages first). Words of function
are left out, and phrases that begin or end with one, or whose words meet no more often than by
chance (normalized pointwise mutual information). The most frequent term stands first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from privsyn.methods.keyphrase_seeding.vocabulary import words

SOURCES = (
    "wikipedia_core_2018",
    "wikipedia_more_2018",
    "wikipedia_recent_short",
    "eltec_eng_novels",
    "us_presidential_speeches",
    "cia_factbook",
    "medquad.train",
    "goemotions.train",
    "clinc150.train",
    "congressional.train",
)
PASSAGE = 100
"""Words of a passage."""

LEAST = {1: 25, 2: 15, 3: 15}
"""Passages a term of so many words must occur in."""

ASSOCIATED = 0.3
"""Normalized pointwise mutual information a phrase must have."""

MOST = 60_000
FUNCTION = frozenset(
    """a about above across after again against ago all almost along already also although always am
    among an and another any anything are around as at away b back be became because become been
    before began behind being below best better between beyond both but by c came can cannot come
    could d de did do does doing don done down during e each either else en enough especially et
    even ever every everything f far few first for former four from full further g gave get give
    given go going got h had half has have having he her here herself him himself his how however i
    if in include included includes including indeed instead into is it its itself j just k keep
    kept known l la last later le least less let like likely ll m made make makes making many may me
    might mine more most mostly much must my myself n named nearly neither never next no nor not
    nothing now o of off often on once one only onto or other others our ours ourselves out over own
    p per perhaps put q quite r rather re really recently same say second seem seemed seems seen
    several shall she should since six so some something sometimes soon still such t take taken than
    that the their theirs them themselves then there therefore these they thing things third this
    those though three through throughout thus to together too took toward towards two u under until
    up upon us use used uses using usually v ve very via w was way we well went were what whatever
    when where whether which while who whole whom whose why will with within without won would x
    y yet you your yours yourself z isn doesn didn wasn weren hasn haven hadn wouldn couldn shouldn
    aren http https www com org html""".split()
)


def passages(file: Path) -> Iterator[list[str]]:
    """Words of a passage, an empty one at every mark between them; about PASSAGE a passage."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            passage: list[str] = []
            for run in re.split(r"[.,;:!?()\[\]\"\n]+|\s-+\s", json.loads(line)["text"]):
                passage += [*words(run), ""]  # an empty word: no phrase goes over it
                if len(passage) > PASSAGE:
                    yield passage
                    passage = []
            yield passage


def counts(folder: Path) -> tuple[Counter[tuple[str, ...]], int]:
    """In how many passages each term occurs, and the number of passages."""
    found: Counter[tuple[str, ...]] = Counter()
    total = 0
    for name in SOURCES:
        for passage in passages(folder / f"{name}.jsonl.gz"):
            total += 1
            found.update({(word,) for word in passage if word})
            for size in (2, 3):
                grams = zip(*(passage[start:] for start in range(size)), strict=False)
                found.update({gram for gram in grams if _content(gram)})
        for gram in [gram for gram, count in found.items() if len(gram) > 1 and count < 2]:
            del found[gram]  # bounds memory; a phrase of two sources may lose one occurrence
        print(f"{name}: {total:,} passages, {len(found):,} terms", flush=True)
    return found, total


def _content(gram: tuple[str, ...]) -> bool:
    ends = (gram[0], gram[-1])
    return all(gram) and not any(word in FUNCTION or len(word) < 2 for word in ends)


def choose(found: Counter[tuple[str, ...]], total: int) -> list[str]:
    """Terms worth a place, the most frequent first."""
    kept: list[tuple[int, str]] = []
    for gram, count in found.items():
        if count < LEAST[len(gram)] or not _content(gram) or any(map(str.isdigit, gram)):
            continue
        if len(gram) == 1 and (len(gram[0]) < 3 or re.search(r"\d", gram[0])):
            continue
        if len(gram) > 1:
            chance = math.prod(found[(word,)] / total for word in gram)
            share = count / total
            if math.log(share / chance) / ((len(gram) - 1) * -math.log(share)) < ASSOCIATED:
                continue
        kept.append((-count, " ".join(gram)))
    return [term for _, term in sorted(kept)[:MOST]]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    terms = choose(*counts(arguments.folder))
    data = gzip.compress("".join(f"{term}\n" for term in terms).encode(), mtime=0)
    arguments.output.write_bytes(data)
    sizes = Counter(len(term.split()) for term in terms)
    print(f"{len(terms):,} terms ({dict(sorted(sizes.items()))}), {len(data):,} bytes")


if __name__ == "__main__":
    main()
