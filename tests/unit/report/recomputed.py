"""Every number of the outward report, computed once more from the release folder, by other code.

Of texts and of images.
"""

import itertools
import json
import math
import re
from collections import Counter
from datetime import date
from decimal import ROUND_CEILING, Decimal
from statistics import mean, median, pstdev

from PIL import Image

NUMBER = re.compile(r"(?<![\w.#-])\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?![\w-])")
WORD = re.compile(r"\w+")


def rows_of(folder):
    return [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]


def numbers(folder):
    sealed = json.loads((folder / "certificate.json").read_text())
    plan = sealed.get("plan") or sealed["parents"][0]["plan"]
    known = {"epsilon": plan["epsilon"], "delta": plan["delta"]}
    rows = rows_of(folder)
    return known | (pictures(folder, rows) if "file" in rows[0] else words(rows))


def words(rows):
    texts = [row["text"] for row in rows]
    words = [WORD.findall(text.lower()) for text in texts]
    singles = [word for text in words for word in text]
    pairs = [pair for text in words for pair in itertools.pairwise(text)]
    lengths = [len(text.split()) for text in texts]
    return {
        "texts": len(texts),
        "words mean": len(singles) / len(texts),
        "vocabulary": len(set(singles)),
        "distinct 1": len(set(singles)) / len(singles),
        "distinct 2": len(set(pairs)) / max(len(pairs), 1),
        "duplicate share": 1 - len(set(texts)) / len(texts),
        "empty share": sum(not text.strip() for text in texts) / len(texts),
        "shortest": min(lengths),
        "longest": max(lengths),
    }


def opened(folder, rows):
    return [Image.open(folder / row["file"]) for row in rows]


def pictures(folder, rows):
    images = opened(folder, rows)
    values = [list(one.tobytes()) for one in images]
    means = [mean(one) for one in values]
    sizes = Counter(f"{one.width} x {one.height} {one.mode}" for one in images)
    return {
        "images": len(rows),
        "duplicate share": 1 - len(set(map(tuple, values))) / len(rows),
        "brightness mean": mean(means),
        "brightness std": pstdev(means),
        "spread mean": mean(max(one) - min(one) for one in values),
        **sizes,
    }


def labels(folder):
    return dict(Counter(row["label"] for row in rows_of(folder)))


def histogram(folder, edges):
    """Texts by words, or images by brightness, per bin of these edges; and the median.

    The last bin is open above.
    """
    rows = rows_of(folder)
    starts, ends = edges[:-1], [*edges[1:-1], math.inf]
    if "file" in rows[0]:
        exact = [mean(one.tobytes()) for one in opened(folder, rows)]
        sizes, middle = [round(one) for one in exact], round(median(exact), 1)
    else:
        sizes = [len(row["text"].split()) for row in rows]
        middle = float(median(sizes))
    counts = [sum(low <= n < high for n in sizes) for low, high in zip(starts, ends, strict=True)]
    return counts, middle


def sayable(folder):
    """Numbers that sentences and facts may hold: the certificate's, and what follows from it."""
    sealed = json.loads((folder / "certificate.json").read_text())
    paid = sealed if "plan" in sealed else sealed["parents"][0]
    account, risk = paid["account"], paid["risk"]
    rows = rows_of(folder)
    validated = json.loads((folder / "validation.json").read_text())
    checks = validated["expectations"]
    said = {form for value in leaves(sealed) for form in forms(value)}
    said |= {form for check in checks for form in NUMBER.findall(check["detail"])}
    said |= {form for value in (len(rows), len(checks)) for form in forms(value)}
    said |= set(NUMBER.findall(f"{validated.get('gx_version', '')}."))
    shares = [account["loss"] / account["budget"], account["spent"] / account["budget"]]
    shares += [account["share"]] if "share" in account else []
    said |= {f"{math.ceil(1000 * share - 1e-9) / 10:g}" for share in shares}  # never told too low
    said.add(f"{100 * numbers(folder).get('duplicate share', 0):.1f}")
    for value in leaves(sealed.get("accuracy", {})):
        said |= {f"{value:.3f}", f"{value:.2f}", f"{value:.4g}"} if _is_number(value) else set()
    confidence = sealed.get("accuracy", {}).get("confidence", 0)
    said |= {f"{100 * confidence:.0f}"}
    known = paid.get("risk_without_secret", risk)  # by somebody who knows the buckets
    family = paid.get("risk_together", risk)
    rates = [(1 + one["advantage"]) / 2 for one in (risk, known, family)]
    rates += [risk["found_at_1_percent"], risk["found_at_1_permille"]]
    said |= {f"{math.ceil(100 * rate - 1e-9):,}" for rate in rates}
    said.add(f"{len(validated.get('cautions', ()))}")
    unstated = {"tuning", "access", "intended_use", "biases"} - set(validated.get("deployment", {}))
    said.add(f"{len(unstated)}")
    day = date.fromisoformat(paid["reserved_on"])
    said |= {f"{day:%d}", f"{day:%Y}"}
    # Of somebody whose data is not used 50 in 100, wrong accusations of 1 in 1,000, the scale by
    # which an epsilon is judged.
    return said | {"1", "50", "100", "1,000", "10", "40"}


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def forms(value):
    if isinstance(value, str):
        return NUMBER.findall(value)
    if not _is_number(value):
        return []
    ups = [f"{raised(value, digits):g}" for digits in (4, 6)]
    plain = [f"{value:g}", f"{value:.3g}", f"{value:.4g}", f"{value:,}", f"{round(value):,}"]
    return [*plain, *ups]


def raised(value, digits):
    """The least number of so many digits that is not below this one."""
    if not value:
        return 0.0
    step = Decimal(1).scaleb(Decimal(value).adjusted() + 1 - digits)
    return float((Decimal(value) / step).to_integral_value(ROUND_CEILING) * step)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def blocks(report):
    for section in report["sections"]:
        for block in section["blocks"]:
            yield section["key"], block


def check(folder):
    report = json.loads((folder / "report.json").read_text())
    known, sentences, seen = numbers(folder), sayable(folder), 0
    for key, block in blocks(report):
        kind = block["kind"]
        if kind in ("numbers", "figures"):
            for item in block["items"]:
                assert math.isclose(item["value"], known[item["name"]]), item
                assert item["low"] is item["high"] is None
                seen += 1
        elif kind == "counts":
            assert {name: count for name, count in block["items"] if count} == labels(folder)
            seen += len(block["items"])
        elif kind == "histogram":
            assert (block["counts"], block["median"]) == histogram(folder, block["edges"])
            seen += len(block["counts"])
        elif kind == "bars":
            assert key == "accuracy", key
            sealed = json.loads((folder / "certificate.json").read_text())["accuracy"]
            ends = [(sealed["low"], sealed["high"]), (sealed["noise_low"], sealed["noise_high"])]
            found = [(item["low"], item["high"]) for item in block["items"]]
            assert found == ends
            assert {item["value"] for item in block["items"]} == {sealed["value"]}
            seen += len(block["items"])
        elif kind == "samples":
            text = (folder / "synthetic.jsonl").read_text()
            assert all(
                json.dumps(item["text"], ensure_ascii=False) in text for item in block["items"]
            )
        elif kind == "picture":
            continue  # its bytes have a digest of their own
        else:
            assert kind in ("answers", "facts", "words", "checks", "commands"), kind
            said = {form for leaf in leaves(block) for form in forms_of(leaf)}
            assert said <= sentences, (key, said - sentences)
            seen += len(said)
    advised = {n for section in report["sections"] for n in NUMBER.findall(section["advice"])}
    assert advised <= sentences
    return seen


def forms_of(leaf):
    if isinstance(leaf, str):
        return NUMBER.findall(leaf)
    if isinstance(leaf, bool) or not isinstance(leaf, int | float):
        return []
    return [f"{leaf:,}" if isinstance(leaf, int) else f"{leaf:.4g}"]


def on_page(folder):
    page = (folder / "report.html").read_text()
    for part in ("style", "figure", "code", "sup"):
        page = re.sub(rf"(?s)<{part}[ >].*?</{part}>", " ", page)
    return set(NUMBER.findall(re.sub(r"<[^>]*>", " ", page)))
