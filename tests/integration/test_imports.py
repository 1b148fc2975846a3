"""What importing and describing load: nothing heavy, and nothing said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from privsyn.methods.registry import METHODS
from tests.unit.models.test_diffusers_image import LABELED
from tests.unit.models.test_model_identity import identity
from tests.unit.models.tiny_generators import save_unet
from tests.unit.test_architecture import ROOT


def test_planning_loads_neither_torch_nor_openai() -> None:
    code = (
        "import sys\n"
        "from privsyn.models.loading import describe_role\n"
        "from privsyn.config import ModelsConfig\n"
        "server = {'url': 'http://localhost/v1', 'model': 'm'}\n"
        "for cfg in (ModelsConfig(server=server), ModelsConfig(language='tiny')):\n"
        "    describe_role(cfg, 'text')\n"
        "print({'torch', 'transformers', 'openai', 'httpx'} & set(sys.modules))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (out.stdout, out.stderr) == ("set()\n", "")


def test_tiny_needs_no_torch_to_be_described(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from privsyn.models.model_identity import describe\n"
        "from privsyn.config import ModelsConfig\n"
        "print(describe(ModelsConfig(language='tiny')).revision)\n"
        "print({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    revision, modules = out.stdout.splitlines()
    assert revision == identity("tiny").revision
    assert modules == "set()"


def test_describing_loads_neither_torch_nor_diffusers(tmp_path: Path) -> None:
    image = save_unet(tmp_path, classes=3, own=LABELED)
    code = (
        "import sys; from privsyn.config import ModelsConfig\n"
        "from privsyn.models.loading import describe_role\n"
        f"describe_role(ModelsConfig(image={str(image)!r}), 'image')\n"
        "describe_role(ModelsConfig(), 'image_embedder')\n"
        "print([m for m in ('torch', 'diffusers', 'PIL', 'transformers') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_importing_the_ledger_is_light() -> None:
    code = (
        "import sys, privsyn.ledger; heavy = {'numpy', 'scipy', 'pandas', 'torch', 'opendp',"
        " 'psycopg', 'privsyn.dp.accountant'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_version_and_the_help_import_no_command(option: str) -> None:
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


HEAVY = (
    "torch",
    "transformers",
    "faiss",
    "openai",
    "mlflow",
    "great_expectations",
    "sklearn",
    "pandas",
    "matplotlib",
)


@pytest.mark.parametrize(
    "statement",
    [
        "import privsyn.cli, privsyn.stages.plan, privsyn.ledger.ledger",
        *(f"import privsyn.methods.{name}.method" for name in METHODS),
        "import privsyn.students.train",
        "from pathlib import Path; from privsyn.config import load_config; "
        "load_config(Path('params.yaml'))",
    ],
)
def test_planning_loads_nothing_heavy(statement):
    heavy = {*HEAVY, "opendp", "scipy"}
    code = f"import sys; {statement}; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_importing_it_loads_nothing_until_a_name_is_asked_for():
    code = (
        "import sys, privsyn; privsyn.__version__; "
        "print(sorted(name for name in sys.modules if name.startswith('privsyn.'))); "
        "privsyn.Project; "
        "print(sorted({'torch', 'transformers', 'pandas', 'mlflow', 'opendp', 'datasets'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_loading_is_silent_and_leaves_sentence_transformers_out() -> None:
    code = (
        "import sys\n"
        "from privsyn.models.loading import load_embedder as load\n"
        "from privsyn.config import ModelsConfig, PerformanceConfig\n"
        "load(ModelsConfig(), PerformanceConfig(device='cpu')).embed(['word ' * 999])\n"
        "print('sentence_transformers' in sys.modules)\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert (out.returncode, out.stdout, out.stderr) == (0, "False\n", "")


def test_pricing_a_zcdp_release_loads_neither_scipy_nor_opendp() -> None:
    code = (
        "import sys\n"
        "import privsyn.dp.mechanisms, privsyn.dp.clipping\n"
        "from privsyn.dp.accountant import guarantee\n"
        "from privsyn.dp.adjacency import Guarantee\n"
        "from privsyn.dp.calibration import calibrate_rho\n"
        "from privsyn.dp.filters import filter_order\n"
        "from privsyn.dp.events import ZCDP\n"
        "guarantee(ZCDP(calibrate_rho(Guarantee(1.0, 1e-6))), 1e-6); filter_order(1.0, 1e-6)\n"
        "print(*[name for name in ('scipy', 'opendp', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_draw_loads_no_table_and_no_learning_library() -> None:
    """opendp.prelude would: seconds of every process that draws."""
    code = (
        "import sys, numpy as np\n"
        "from privsyn.dp.noise import OpenDPNoise\n"
        "zeros, noise = np.zeros(3, np.int64), OpenDPNoise()\n"
        "noise.noisy_max(zeros, 1.0, 1); noise.laplace(zeros, 1.0); noise.gaussian(zeros, 1.0)\n"
        "print(*[name for name in ('sklearn', 'pandas', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
