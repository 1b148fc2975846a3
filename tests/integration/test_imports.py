"""What importing, planning and drawing load: nothing heavy, and nothing said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from privsyn.methods.registry import METHODS
from tests.unit.models.test_diffusers_image import LABELED
from tests.unit.models.test_model_identity import identity
from tests.unit.models.tiny_generators import save_unet
from tests.unit.test_architecture import ROOT

HEAVY = "torch transformers faiss openai mlflow great_expectations sklearn pandas matplotlib"
PLANNING = f"{HEAVY} opendp scipy"
SETTINGS = "from privsyn.config import ModelsConfig, PerformanceConfig\n"
DESCRIBE = f"{SETTINGS}from privsyn.models.loading import describe_role\n"
CASES = {
    "planning": ("import privsyn.cli, privsyn.stages.plan, privsyn.ledger.ledger", PLANNING),
    **{name: (f"import privsyn.methods.{name}.method", PLANNING) for name in METHODS},
    "students": ("import privsyn.students.train", PLANNING),
    "settings": (
        "from pathlib import Path; from privsyn.config import load_config\n"
        "load_config(Path('params.yaml'))",
        PLANNING,
    ),
    "a server": (
        f"{DESCRIBE}server = {{'url': 'http://localhost/v1', 'model': 'm'}}\n"
        "describe_role(ModelsConfig(server=server), 'text')",
        f"{HEAVY} httpx",
    ),
    "tiny": (
        f"{DESCRIBE}describe_role(ModelsConfig(language='tiny'), 'text')",
        f"{HEAVY} huggingface_hub",
    ),
    "lineage and publishing": (
        "import privsyn.tracking, privsyn.publishing",
        "mlflow dvc sqlalchemy torch pandas",
    ),
    "the ledger": (
        "import privsyn.ledger",
        "numpy scipy pandas torch opendp psycopg privsyn.dp.accountant",
    ),
    "a ledger that is not there": (
        "import privsyn.display.plans; from privsyn.ledger.ledger import Ledger\n"
        "accounts = Ledger('sqlite:////nowhere/ledger.db').accounts\n"
        "assert accounts.all() == [] and accounts.find('clinic') is None",
        "scipy sqlalchemy",
    ),
    "the package": (
        "import privsyn; assert privsyn.__version__\n"
        "assert not [name for name in sys.modules if name.startswith('privsyn.')]\n"
        "assert privsyn.Project",
        "torch transformers pandas mlflow opendp datasets",
    ),
    "an embedder": (
        f"{SETTINGS}from privsyn.models.loading import load_embedder\n"
        "cpu = PerformanceConfig()\n"
        "load_embedder(ModelsConfig(), cpu).embed(['word ' * 999])",
        "sentence_transformers",
    ),
    "the price of zCDP": (
        "import privsyn.dp.mechanisms, privsyn.dp.clipping\n"
        "from privsyn.dp.accountant import guarantee\n"
        "from privsyn.dp.adjacency import Guarantee\n"
        "from privsyn.dp.calibration import calibrate_rho\n"
        "from privsyn.dp.filters import filter_order\n"
        "from privsyn.dp.events import ZCDP\n"
        "guarantee(ZCDP(calibrate_rho(Guarantee(1.0, 1e-6))), 1e-6); filter_order(1.0, 1e-6)",
        "scipy opendp torch",
    ),
    # opendp.prelude would: seconds of every process that draws.
    "a draw": (
        "import numpy as np\n"
        "from privsyn.dp.noise import OpenDPNoise\n"
        "zeros, noise = np.zeros(3, np.int64), OpenDPNoise()\n"
        "noise.noisy_max(zeros, 1.0, 1); noise.laplace(zeros, 1.0); noise.gaussian(zeros, 1.0)",
        "sklearn pandas pyarrow",
    ),
}


def loaded(code, heavy):
    whole = f"import sys\n{code}\nprint(*sorted(set({heavy.split()!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", whole], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("case", CASES)
def test_nothing_heavy_is_loaded_and_nothing_is_said(case, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert loaded(*CASES[case]) == ""


def test_describing_images_loads_neither_torch_nor_diffusers(tmp_path):
    image = save_unet(tmp_path, classes=3, own=LABELED)
    code = (
        f"{DESCRIBE}describe_role(ModelsConfig(image={str(image)!r}), 'image')\n"
        "describe_role(ModelsConfig(), 'image_embedder')"
    )
    assert loaded(code, "torch diffusers PIL transformers") == ""


def test_tiny_is_one_model_with_and_without_torch():
    code = f"{DESCRIBE}print(describe_role(ModelsConfig(language='tiny'), 'language').revision)"
    assert loaded(code, HEAVY) == identity("tiny").revision


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_version_and_the_help_import_no_command(option):
    code = (
        f"import sys; sys.argv = ['privsyn', {option!r}]\n"
        "from privsyn.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    named = [name for name in sys.modules if name.startswith('privsyn.')]\n"
        "    heavy = {'sqlalchemy', 'scipy', 'pydantic', 'torch', 'numpy'} & set(sys.modules)\n"
        "    print(sorted(named), sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "['privsyn.cli', 'privsyn.cli.commands', 'privsyn.errors'] []"
    assert "privsyn" in done.stdout
