"""The client against servers that others wrote: they speak the protocol in their own way.

``transformers serve`` and llama.cpp's server are started here. Another server is asked where
``PRIVSYN_TEST_SERVER`` names its URL and model: ``http://localhost:8080/v1 SmolLM2-135M-Instruct``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from privsyn.models.language import openai_http
from privsyn.models.language.openai_http import ServerTextModel
from privsyn.models.model_store import is_fetched, obtain, store
from privsyn.models.references import PACKAGED, TINY_WEIGHTS
from privsyn.models.settings import ServerConfig
from tests.integration.vault.s3_server import free_port

CALLED = "PRIVSYN_TEST_SERVER"
SMOLLM2 = PACKAGED["smollm2"]


TRANSFORMERS = [Path(sys.executable).with_name("transformers"), "serve", "--device", "cpu"]
LLAMA_CPP = [sys.executable, Path(__file__).with_name("llama_cpp_server.py")]


def _serve(command, model, log):
    port = free_port()
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*map(str, command), str(model), "--host", "127.0.0.1", "--port", str(port)],
            env=os.environ | offline,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()[-2000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(params=["tiny", "smollm2", "yours"])
def server(request, tmp_path):
    kind = request.param
    if kind == "yours":
        if CALLED not in os.environ:
            pytest.skip(f"{CALLED} names no server")
        url, model = os.environ[CALLED].split()
        yield ServerConfig(url=url, model=model)
        return
    if kind == "smollm2" and not is_fetched(SMOLLM2):
        pytest.skip("privsyn models fetch smollm2: the model is not here")
    folder = store() / SMOLLM2.name if kind == "smollm2" else TINY_WEIGHTS.parent
    for url in _serve(TRANSFORMERS, folder, tmp_path / "server.log"):
        yield ServerConfig(
            url=url,
            model=str(folder),
            chat=kind == "smollm2",  # the tiny model has no chat template
        )


def test_prompts_are_answered_and_counted(server):
    prompts = [f"Write a sentence about {what}." for what in ("a bill", "a knee", "the weather")]
    openai_http._used.clear()
    model = ServerTextModel(server, "r")
    model.check()
    texts = model.complete(prompts, max_tokens=12, temperature=0.8, top_p=0.9)
    assert len(texts) == 3
    assert any(texts), model.why_empty()  # a small model may end a text at once
    used = openai_http.usage(server)
    assert (used.requests, used.uncounted) == (4, 0)
    assert used.tokens_in > 4
    assert 0 < used.tokens_out <= 16 + 3 * 12


def test_llama_cpp_makes_words_likelier(tmp_path):
    """Only public words are sent; what is biased comes, and what is not does not."""
    if not is_fetched(SMOLLM2):
        pytest.skip("privsyn models fetch smollm2: the model is not here")
    gguf = tmp_path / "model.gguf"
    obtain(SMOLLM2, tmp_path, gguf, tmp_path, lambda *_: None)
    prompt = "Write a sentence about a visit to a doctor."
    for url in _serve(LLAMA_CPP, gguf, tmp_path / "server.log"):
        model = ServerTextModel(ServerConfig(url=url, model="smollm2", logit_bias=True), "r")
        model.check()
        for ratio in (30.0, 0.0):
            (text,) = model.complete(
                [prompt], max_tokens=8, temperature=0.5, log_ratios={"knee": ratio}
            )
            assert ("knee knee" in text) == (ratio > 0)
