"""What a token of InvisibleInk costs: our engine, a plain Hugging Face decode, and invink 0.1.0.

    python benchmarks/decode.py [--models smollm2 tiny gpt2 llama] [--batch 8 32]
        [--dtype float32 bfloat16] [--texts 16] [--tokens 33]
        [--invink /path/to/python3.12]

Decode is what a token costs beyond the first, in CPU seconds (GPU: seconds): the difference of two
runs, of T tokens and of one. End to end is all tokens over all seconds, prompts included. The floor
runs the same rows (B private, one public) with the same padded prompts through
``model(..., past_key_values)``, one text after the other, and once more all texts in one batch. It
draws nothing. The last column is the most memory of the process before the floors load: true of the
first line alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REFERENCE_TOKENS = 48
SHIPPED = ("tiny", "smollm2")
TEXT = "The committee met on Tuesday to look at the new budget and the plans for the harbour. " * 8
CHAT = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def random_model(name: str, folder: Path) -> str:
    """A model of random weights with the embedded model's tokenizer, filled up to its size."""
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig
    from transformers import LlamaForCausalLM as Llama

    from privsyn.models.references import BUILTIN

    if name in SHIPPED:
        return name
    torch.manual_seed(0)
    if name == "gpt2":
        model: Any = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=1))
    else:
        sizes = {
            "llama": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                      "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152},
            "llama-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                         "num_attention_heads": 32, "num_key_value_heads": 8,
                         "vocab_size": 128_256},
        }[name]  # fmt: skip
        config = LlamaConfig(
            **sizes, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=1
        )
        model = Llama(config)
    tokenizer = AutoTokenizer.from_pretrained(BUILTIN)
    missing = model.config.vocab_size - len(tokenizer)
    tokenizer.add_tokens([f"<unused {i}>" for i in range(missing)])
    tokenizer.chat_template = CHAT
    target = folder / name
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return str(target)


def references(number: int) -> list[str]:
    """As many texts, all longer than the reference length, no two alike."""
    words = TEXT.split()
    return [" ".join(words[i % 17 :]) + f" {i}" for i in range(number)]


class Engine:
    """InvisibleInk over our engine, all texts of a fixed length."""

    def __init__(self, name: str, dtype: str, batch: int, texts: int) -> None:
        from privsyn.models.loading import load_language_model
        from privsyn.models.settings import ModelsConfig, PerformanceConfig

        self.performance = PerformanceConfig()
        self.model = load_language_model(ModelsConfig(language=name, dtype=dtype), self.performance)
        self.batch, self.texts = batch, texts

    def run(self, tokens: int) -> None:
        """Write the texts."""
        from privsyn.data.journal import Journal
        from privsyn.data.records import Bucket, Private
        from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
        from privsyn.dp.noise import OpenDPNoise
        from privsyn.methods.base import Backends, Draw, PricingFacts
        from privsyn.methods.invisible_ink.method import InvisibleInk
        from privsyn.methods.invisible_ink.settings import InvisibleInkSettings
        from privsyn.methods.shared.prompts import Prompt

        method, unit = InvisibleInk(), PrivacyUnit()
        cfg = InvisibleInkSettings(
            batch_size=self.batch,
            max_tokens=tokens,
            texts_per_label=self.texts,
            prompt=Prompt(private="Text: {reference}\nText:", public="Text:"),
        )
        method.prompt = lambda cfg: (cfg.prompt.template, REFERENCE_TOKENS, cfg.max_tokens)
        plan = method.calibrate(
            cfg, Guarantee(10, 1e-6), PricingFacts(Adjacency.REPLACE_NULL, unit, ())
        )
        texts = references(self.batch * self.texts)
        buckets = [
            Bucket(cell, Private(texts[i * self.batch : (i + 1) * self.batch]))
            for i, cell in enumerate(method.cells(cfg, ()))
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal"
            Journal.create(path, {})
            with Journal.open(path, {}) as journal:
                self.drawn = len(
                    list(
                        method.run(
                            cfg,
                            plan,
                            buckets,
                            Draw(
                                Backends({"language": self.model}),
                                OpenDPNoise(),
                                journal,
                                self.performance,
                            ),
                        )
                    )
                )


class Floor:
    """The same rows through transformers' own model and cache."""

    def __init__(self, name: str, dtype: str, batch: int, texts: int, together: bool) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from privsyn.models.model_identity import locate
        from privsyn.models.references import ModelReference

        folder = locate(ModelReference("models.language", name)).folder
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model.to(self.device).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        rows = [
            tokenizer(f"Text: {text}", add_special_tokens=False)["input_ids"]
            for text in references(batch)
        ]
        width = REFERENCE_TOKENS + 6
        block = [row[:width] for row in rows] + [[1] * (width - 2) + rows[0][:2]]
        self.texts = texts
        repeat = texts if together else 1
        self.ids = torch.tensor(block * repeat, device=self.device)
        self.mask = (self.ids != 1).long()
        self.runs = 1 if together else texts

    def run(self, tokens: int) -> None:
        """Decode, taking the likeliest token of the public row."""
        import torch

        from privsyn.models.language.rowwise import cache_argument

        name = cache_argument(self.model)
        with torch.inference_mode():
            for _ in range(self.runs):
                ids, mask, cache = self.ids, self.mask, None
                for _ in range(tokens):
                    out = self.model(
                        input_ids=ids, attention_mask=mask, use_cache=True, logits_to_keep=1,
                        **{name: cache},
                    )  # fmt: skip
                    cache = out[name]
                    best = int(out.logits[-1, -1].argmax())
                    ids = torch.full((len(mask), 1), best, device=self.device)
                    mask = torch.cat([mask, torch.ones_like(ids)], dim=1)


INVINK = """
import json, sys, time
import torch
from invink import generate
folder, batch, texts, tokens, few, threads, dtype = json.loads(sys.argv[1])
references = json.loads(sys.stdin.read())
torch.set_num_threads(threads)
def run(num, tokens):
    start, cpu = time.perf_counter(), time.process_time()
    out = generate(references, model_name_or_path=folder, dataset_desc="news", batch_size=batch,
                   num=num, max_toks=tokens, epsilon=10.0, delta=1e-6, temperature=1.1, topk=100,
                   dtype=dtype, device_map=0 if torch.cuda.is_available() else -1)
    return time.perf_counter() - start, time.process_time() - cpu, sum(out.lens)
run(1, few)
one, many, short = run(1, tokens), run(texts, tokens), run(texts, few)
print(json.dumps({"wall": many[0] - one[0], "tokens": many[2] - one[2],
                  "decode": (many[1] - short[1]) / (many[2] - short[2])}))
"""


def invink(
    python: str, folder: str, dtype: str, batch: int, texts: int, tokens: int, threads: int
) -> dict[str, float]:
    """Seconds of invink, loading left out by difference. Its batch counts the public row."""
    settings = json.dumps([folder, batch + 1, texts, tokens, 1, threads, dtype])
    cut = [" ".join(text.split()[:40]) for text in references((batch + 1) * (texts + 1))]
    done = subprocess.run(
        [python, "-c", INVINK, settings],
        input=json.dumps(cut),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"invink failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def clock(run: Callable[[int], None], tokens: int) -> tuple[float, float]:
    """Seconds of a run: elapsed, and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(tokens)
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(
    runs: list[tuple[Callable[[int], None], int]], tokens: int, cuda: bool
) -> list[tuple[float, float]]:
    """Of each run (and its number of texts): decode seconds per token, and tokens per second."""
    for run, _ in runs:
        clock(run, 2)
    short = [clock(run, 1) for run, _ in runs]
    long = [clock(run, tokens) for run, _ in runs]
    kind = 0 if cuda else 1
    return [
        ((b[kind] - a[kind]) / ((tokens - 1) * texts), tokens * texts / b[0])
        for (_, texts), a, b in zip(runs, short, long, strict=True)
    ]


def machine(threads: int) -> str:
    """The machine in one line."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    return f"{model}, {threads} threads, torch {torch.__version__}"


def main() -> None:
    """Measure and print a Markdown table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["smollm2", "tiny", "gpt2", "llama"])
    parser.add_argument("--batch", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--texts", type=int, default=16, help="texts of a run")
    parser.add_argument("--tokens", type=int, default=33, help="tokens of a text")
    parser.add_argument("--invink", help="a Python with invink 0.1.0 installed")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    threads, tokens = torch.get_num_threads(), arguments.tokens
    print(f"Machine: {machine(threads)}. T={tokens}, {arguments.texts} texts, k=100.\n")
    if not arguments.invink:
        print("invink: left out (--invink names a Python that has it).\n", file=sys.stderr)
    print(
        "| model | type | B | decode, ms a token: ours | floor | floor, all texts at once | invink "
        "| ours / floor | end to end, tokens/s: ours | floor | invink | ours / invink | peak GB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    settings = itertools.product(arguments.models, arguments.dtype, arguments.batch)
    with tempfile.TemporaryDirectory() as folder:
        for model, dtype, batch in settings:
            name = random_model(model, Path(folder))
            texts, few = arguments.texts, max(2, arguments.texts // 4)
            engine = Engine(name, dtype, batch, texts)
            engine.run(2)
            peak = (
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            )  # before the floors load
            alone = Floor(name, dtype, batch, few, together=False)
            joined = Floor(name, dtype, batch, texts, together=True)
            runs = [(engine.run, texts), (alone.run, few), (joined.run, texts)]
            ours, floor, whole = measure(runs, tokens, cuda)
            cells = ["-", "-", "-"]
            if arguments.invink and model not in SHIPPED:
                other = invink(arguments.invink, name, dtype, batch, few, tokens, threads)
                speed = other["tokens"] / other["wall"]
                cells = [f"{1000 * other['decode']:.1f}", f"{speed:.1f}",
                         f"{ours[1] / speed:.1f}x"]  # fmt: skip
            print(
                f"| {model} | {dtype} | {batch} | {1000 * ours[0]:.1f} | {1000 * floor[0]:.1f} "
                f"| {1000 * whole[0]:.1f} | {cells[0]} | {ours[0] / floor[0]:.2f}x "
                f"| {ours[1]:.1f} | {floor[1]:.1f} | {cells[1]} | {cells[2]} | {peak:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
