"""What a published model must do, and the page that says so. Reads the model's folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from privsyn.errors import ModelError
from privsyn.models.settings import PerformanceConfig
from privsyn.release.verification import Check
from privsyn.validation.page import STYLE


def examine_model(folder: Path, performance: PerformanceConfig) -> list[Check]:
    """Whether a causal language model loads, is finite, and gives a distribution over tokens.

    Args:
        folder: Weights, config, tokenizer and prompt.
        performance: Device and threads.
    """
    import torch

    from privsyn.models.torch_runtime import ready
    from privsyn.models.training import causal_lm as student

    with ready(performance) as device, torch.inference_mode():
        try:
            tokenizer = student.read_tokenizer(folder)
            model = student.read_model(folder).to(device).eval()
            texts = student.encode(tokenizer, student.prompt_of(folder), [(None, "a")], 2)
        except ModelError as error:
            return [Check("model loads", False, error.message)]
        count = sum(weights.numel() for weights in model.parameters())
        finite = all(bool(torch.isfinite(weights).all()) for weights in model.parameters())
        ids, _ = student.pad(texts, device)
        shares = model(input_ids=ids, use_cache=False).logits.float().softmax(-1)
        known = len(tokenizer) <= shares.shape[-1]
        whole = bool(((shares.sum(-1) - 1).abs() < 1e-3).all())
    return [
        Check("model loads", True, f"{count:,} parameters"),
        Check("weights are finite", finite, "no NaN and no infinity among them"),
        Check("model predicts", whole, "the next token's probabilities add to 1"),
        Check("model knows its tokens", known, f"{len(tokenizer):,} tokens of its tokenizer"),
    ]


def render_model_page(checks: Sequence[Check], facts: Mapping[str, Any]) -> str:
    """The checks and public facts of a model as one HTML page: no script, nothing fetched.

    Args:
        checks: Their outcomes; None where one could not be made.
        facts: Name and value.
    """
    words = {True: "Holds", False: "Fails", None: "Not checked"}
    passed = all(check.passed is not False for check in checks)
    rows = "".join(
        f"<tr><td>{words[check.passed]}</td><td>{escape(check.name)}</td>"
        f'<td class="detail">{escape(check.detail)}</td></tr>'
        for check in checks
    )
    listed = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(str(value))}</dd>"
        for name, value in facts.items()
        if value is not None
    )
    name = escape(str(facts.get("release_id", "")))
    verdict = ("pass", "Passed") if passed else ("fail", "Failed")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
            '<link rel="icon" href="data:,">',
            f"<title>Validation of {name}</title>",
            f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
            '<header><p class="kicker">Validation of a model from synthetic data</p>'
            f"<h1>{name}</h1></header>",
            f'<section class="verdict {verdict[0]}"><div><strong>{verdict[1]}</strong>'
            f"{len(checks)} checks.</div></section>",
            f'<section class="card"><h2>Facts</h2><dl>{listed}</dl></section>',
            '<section class="card checks"><h2>Checks</h2><table><thead><tr><th>Outcome</th>'
            f"<th>Check</th><th>Found</th></tr></thead><tbody>{rows}</tbody></table></section>",
            "<footer><p>The model was trained on a release's synthetic texts alone: it is "
            "post-processing of the release and costs no privacy.</p></footer>",
            "</main></body></html>\n",
        ]
    )
