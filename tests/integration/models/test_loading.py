"""Loading a model says nothing."""

import os
import subprocess
import sys


def test_loading_says_nothing(folders):
    code = (
        "from privsyn.models.loading import check_prompt, load_language_model as load\n"
        "from privsyn.config import ModelsConfig, PerformanceConfig\n"
        "tiny = ModelsConfig(language='tiny')\n"
        "model = load(tiny, PerformanceConfig(rows_per_pass=16))\n"
        "from privsyn.models.model_identity import describe\n"
        "prompt = describe(tiny).template_default\n"
        "model.private_rows(prompt, [None], ['word ' * 9000], 8, 2, declared=[None]).logits()\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert (out.returncode, out.stdout, out.stderr) == (0, "", "")
