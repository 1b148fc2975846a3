"""Fixtures of the backend tests."""

import os

import pytest

from tests.unit.models.tiny_models import (
    save_bert,
    save_falcon,
    save_gpt2,
    save_hybrid,
    save_llama,
    save_mamba,
    save_sliding,
    save_softcapped,
)

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as load does; here torch may start earlier


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """``folders(name)``: path of a tiny model, or ``tiny``, as models.language takes it."""
    root = tmp_path_factory.mktemp("models")
    makers = {
        "llama": save_llama, "chat": lambda folder: save_llama(folder, chat=True),
        "gpt2": save_gpt2, "sliding": save_sliding, "softcapped": save_softcapped,
        "hybrid": save_hybrid, "falcon": save_falcon, "mamba": save_mamba, "bert": save_bert,
    }  # fmt: skip

    def get(name):
        if name == "tiny":
            return name
        folder = root / name
        if not folder.exists():
            folder.mkdir()
            makers[name](folder)
        return str(folder)

    return get


@pytest.fixture
def two_threads():
    """Two threads whatever the machine: how work is shared out is where rows can come apart."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
