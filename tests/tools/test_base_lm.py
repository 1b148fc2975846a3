"""The trainer of the embedded language model, end to end on a corpus of invented text."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from tools.base_lm import episodes
from tools.base_lm.model import ChunkedLoss, causal_attention
from tools.base_lm.train import Recipe, export, orthogonal, train

ROOT = Path(__file__).parents[2]
TINY = Recipe(
    width=32,
    layers=2,
    heads=2,
    feed_forward=48,
    rows_per_step=2,
    micro_batch=1,
    steps=6,
    warm_up=2,
    save_every=3,
)
TOPICS = {
    "harbour": "boat quay tide anchor rope sail gull pier captain lighthouse".split(),
    "kitchen": "bread oven flour butter kettle spoon recipe onion pepper cook".split(),
    "railway": "train station ticket platform signal guard carriage whistle bridge tunnel".split(),
}


def sentence(rng: random.Random, words: list[str]) -> str:
    body = " ".join(f"the {rng.choice(words)} was near the {rng.choice(words)}" for _ in range(3))
    return body.capitalize() + "."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Articles, novels with speech, labelled queries, questions and answers; ids as they come."""
    folder, rng = tmp_path_factory.mktemp("corpus"), random.Random(1)
    files: dict[str, list[dict[str, str]]] = {"articles": [], "novels": [], "queries": [], "qa": []}
    for i in range(300):
        topic = rng.choice(list(TOPICS))
        words = TOPICS[topic]
        mark = ["heldout"] if episodes.is_held_out(f"a{i}") else []
        text = "\n".join(
            " ".join(sentence(rng, words + mark) for _ in range(rng.randint(1, 9)))
            for _ in range(6)
        )
        files["articles"].append({"id": f"a{i}", "title": topic, "text": text})
        files["queries"].append({"id": f"q{i}", "label": topic, "text": sentence(rng, words)[:60]})
    for i in range(12):
        speech = " ".join(f'"{sentence(rng, TOPICS["kitchen"])}" he said.' for _ in range(20))
        files["novels"].append({"id": f"n{i}", "title": "A novel", "text": speech})
        answer = f"Question: What is {i} ?\nAnswer: {sentence(rng, TOPICS['railway'])}"
        files["qa"].append({"id": f"m{i}", "text": answer})
    for name, rows in files.items():
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    assert any(episodes.is_held_out(row["id"]) for row in files["articles"])
    return folder


@pytest.fixture(scope="module")
def work(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    tokenizer = episodes.train_tokenizer(corpus, 400)
    episodes.prepare(corpus, folder, tokenizer, number=24, seed=1)
    return folder


@pytest.fixture(scope="module")
def trained(work: Path) -> Path:
    train(work, TINY, "cpu", init=None, compiled=False)
    return work


def test_rows_are_whole_episodes_and_keep_held_out_documents_out(work: Path) -> None:
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    rows = np.load(work / "train.npy")
    assert rows.shape == (24, episodes.ROW)
    assert (rows[:, 0] == tokenizer.token_to_id("<|start|>")).all()
    texts = [tokenizer.decode(row.tolist(), skip_special_tokens=False) for row in rows]
    assert not any("heldout" in text for text in texts)
    assert any("Keywords: " in text for text in texts)
    assert any("Topic: " in text for text in texts)
    held_out = np.load(work / "held_out.npy")
    assert any("heldout" in tokenizer.decode(row.tolist()) for row in held_out)


def test_passages_of_an_episode_belong_together(corpus: Path) -> None:
    drawn = episodes.Episodes(episodes.gather(corpus, False, 1), random.Random(2))
    kinds = dict.fromkeys(drawn.kinds, 0)
    assert set(kinds) == set(episodes.KINDS)
    for kind in ("neighbours", "document", "label"):
        for _ in range(30):
            passages = drawn._passages(kind)
            text = " ".join(passage.text for passage in passages)
            topics = [topic for topic, words in TOPICS.items() if any(w in text for w in words)]
            # Topics share no word, so an episode on one topic names one.
            kinds[kind] += len(topics) == 1
    assert kinds["document"] == kinds["label"] == 30
    assert kinds["neighbours"] > 20  # a topic is told from words alone


def test_a_killed_run_goes_on_where_it_was(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.npy", "held_out.npy", "tokenizer.json"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    calls, step = 0, torch.optim.AdamW.step

    def killed(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 5:  # two steps beyond the checkpoint of step 3
            raise KeyboardInterrupt
        return step(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, TINY, "cpu", init=None, compiled=False)
    train(tmp_path, TINY, "cpu", init=None, compiled=False)
    one, other = (
        torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (trained, tmp_path)
    )
    assert other["step"] == 6
    for name, weight in one["model"].items():
        torch.testing.assert_close(other["model"][name], weight, rtol=0, atol=0)


def test_export_loads_as_a_language_model_and_starts_another_run(
    trained: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "model"
    export(trained, folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 1)
    rows = torch.from_numpy(np.load(trained / "held_out.npy").astype(np.int64))
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    loss = float(F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
    curve = [json.loads(line) for line in (trained / "curve.jsonl").read_text().splitlines()]
    assert curve[-1]["step"] == 6
    assert loss == pytest.approx(curve[-1]["held_out"], rel=2e-3)  # float16 and bfloat16 apart
    assert curve[-1]["held_out"] < curve[0]["held_out"] < np.log(400)

    for name in ("train.npy", "held_out.npy", "tokenizer.json"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    train(tmp_path, Recipe(**{**vars(TINY), "steps": 1, "warm_up": 1000}), "cpu", folder, False)
    again = json.loads((tmp_path / "curve.jsonl").read_text().splitlines()[-1])
    assert again["held_out"] == pytest.approx(curve[-1]["held_out"], rel=1e-2)


def test_command_line_prints_both_tables(trained: Path, corpus: Path, tmp_path: Path) -> None:
    export(trained, tmp_path / "small")
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "queries.train.jsonl.gz").write_bytes((corpus / "queries.jsonl.gz").read_bytes())
    command = ["evaluate", str(tmp_path / "small"), "--work", str(trained), "--texts", str(texts)]
    done = subprocess.run(
        [sys.executable, "-m", "tools.base_lm", *command, "--number", "20"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "| small | 0.0" in done.stdout
    assert "| small | queries | " in done.stdout


def test_attention_and_loss_are_the_textbook_ones() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 37, 8).unbind()
    torch.testing.assert_close(
        causal_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)
    )
    hidden = torch.randn(1500, 8, requires_grad=True)  # more than one chunk
    head, targets = torch.randn(30, 8, requires_grad=True), torch.randint(0, 30, (1500,))
    expected = F.cross_entropy(hidden @ head.T, targets, reduction="sum")
    ours = ChunkedLoss.apply(hidden, head, targets)
    torch.testing.assert_close(ours, expected)
    for mine, theirs in zip(
        torch.autograd.grad(3 * ours, (hidden, head)),
        torch.autograd.grad(3 * expected, (hidden, head)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_an_update_of_muon_is_near_orthogonal() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(3, 24, 60)).float())
    assert values.min() > 0.5
    assert values.max() < 1.5


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "one.jsonl.gz", "wt") as out:
        out.write(json.dumps({"id": "1", "text": "Short."}) + "\n")
    with pytest.raises(SystemExit, match="too little text"):
        episodes.Episodes(episodes.gather(tmp_path, False, 1), random.Random(0))
