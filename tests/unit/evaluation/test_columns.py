"""Columns beside real records: numbers move where, and only where, columns are wrong."""

import numpy as np
import pytest

from privsyn.evaluation.columns import CellRecords, compare_columns
from privsyn.evaluation.report import Availability, sections

SIZES = {"age": 4, "channel": 3, "label": 2}
WORDS = (("school", "work", "garden", "pension"), ("click", "call", "letter"))


def records(count, seed):
    """Age says the channel, half of the time; the label is said by both, and the text says all."""
    rng = np.random.default_rng(seed)
    rows, texts, labels = [], [], []
    for _ in range(count):
        age = int(rng.integers(4))
        channel = min(age, 2) if rng.random() < 0.7 else int(rng.integers(3))
        old = rng.random() < (0.9 if age + channel > 2 else 0.1)
        rows.append([age, channel])
        texts.append(f"hello {WORDS[0][age]} and {WORDS[1][channel]} {rng.integers(9)} times")
        labels.append("old" if old else "new")
    return CellRecords.of(rows, texts, labels, ("new", "old"))


def numbers(ours, theirs):
    metrics = compare_columns(SIZES, ours, theirs)
    assert {metric.cls for metric in metrics} == {"internal"}
    return {metric.name.removeprefix("columns."): metric.value for metric in metrics}


def shuffled(rows):
    return rows.independent(np.random.default_rng(5))


def other_channel(rows):
    cells = rows.cells.copy()
    cells[:, 1] = 0
    return CellRecords(cells, rows.texts, label=True)


def test_a_release_like_the_records_is_as_far_as_sampling_and_its_texts_fit():
    value = numbers(records(600, 1), records(600, 2))
    assert value["apart"] < 2 * value["apart_sampling"]
    assert value["pairs_apart"] < 1.5 * value["pairs_apart_sampling"]
    assert value["pairs_apart_independent"] > 2 * value["pairs_apart"]
    assert value["apart_public"] > 2 * value["apart"]
    assert value["fit"] > 0.9
    assert value["fit_real"] > 0.9
    assert value["fit_independent"] < 0.5
    assert value["label.both"] > value["label.chance"] + 0.2
    assert value["label.columns"] > value["label.independent"] - 0.05
    assert abs(value["label.both"] - value["label.real"]) < 0.1


def columns_section(metrics):
    about = Availability(True, True, True, True, 600, "epsilon")
    (section,) = (one for one in sections(metrics, about) if one.key == "columns")
    return section


def one_cell(rows):
    return CellRecords(rows.cells * [0, 0, 1], rows.texts, label=True)


@pytest.mark.parametrize(
    ("broken", "said", "moved"),
    [
        (shuffled, "hardly nearer to real records than independent", "pairs_apart"),
        (shuffled, "less than half as well", "fit"),
        (other_channel, "", "apart.channel"),
        (one_cell, "found no better by columns and text together", "label.columns"),
        (one_cell, "no nearer to real records than rows that take every", "apart"),
    ],
)
def test_what_is_wrong_moves_its_number(broken, said, moved):
    ours, theirs = records(600, 1), records(600, 2)
    right, wrong = numbers(ours, theirs), numbers(broken(ours), theirs)
    assert abs(wrong[moved] - right[moved]) > 0.1
    metrics = [metric.to_json() for metric in compare_columns(SIZES, broken(ours), theirs)]
    assert said in columns_section(metrics).advice


@pytest.mark.parametrize(
    ("chance", "said"), [(0.03, " Texts fit their rows."), (0.05, "Too few texts, or too weak a")]
)
def test_a_fit_that_may_be_chance_is_not_called_one(chance, said):
    metrics = [one.to_json() for one in compare_columns(SIZES, records(60, 1), records(60, 2))]
    fit = {"": 0.24, "_real": 0.25, "_independent": 0.2, "_chance": chance}
    values = {f"columns.fit{end}": value for end, value in fit.items()}
    assert values.keys() < {one["name"] for one in metrics}
    changed = [one | {"value": values.get(one["name"], one["value"])} for one in metrics]
    assert said in f" {columns_section(changed).advice}"


def test_few_records_texts_without_words_and_one_cell_are_no_error():
    assert compare_columns(SIZES, records(10, 1), records(600, 2)) == []
    plain = CellRecords(np.zeros((30, 2), np.int64), ["!"] * 30, label=True)
    value = {one.name: one.value for one in compare_columns({"a": 3, "label": 2}, plain, plain)}
    assert value["columns.apart"] == 0
    assert value["columns.fit"] == 1
