"""Images by diffusion: the sampler against exact answers, folders as users bring them, builtin."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from privsyn.errors import ModelError
from privsyn.models.images.diffusers_image import DiffusionImages
from privsyn.models.images.image_folders import ImageFacts
from privsyn.models.loading import describe_role, load_image_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tests.unit.models.tiny_generators import save_stable_diffusion, save_unet

CPU = PerformanceConfig(rows_per_pass=4)
LABELED = {"labels": ["cat", "dog"], "null_class": 2, "steps": 4, "guidance": 1.5}


def load(image, seed=0, **settings):
    rng = None if seed is None else np.random.default_rng(seed)
    return load_image_model(ModelsConfig(image=str(image), **settings), CPU, rng=rng)


def described(image, **settings):
    return describe_role(ModelsConfig(image=str(image), **settings), "image")


@pytest.fixture(scope="module")
def labeled(tmp_path_factory):
    return save_unet(tmp_path_factory.mktemp("labeled"), classes=3, own=LABELED)


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    return save_unet(tmp_path_factory.mktemp("colors"), channels=3)


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    return save_stable_diffusion(tmp_path_factory.mktemp("prompted"))


class Oracle:
    """The perfect network for pixels that are normal with a mean per class: answers by formula."""

    device = torch.device("cpu")

    def __init__(self, alphas, prediction, means, deviation):
        self.config = SimpleNamespace(in_channels=1, sample_size=4)
        self.alphas, self.prediction = alphas, prediction
        self.means, self.variance = torch.tensor(means), deviation**2

    def __call__(self, x, time, class_labels):
        kept = self.alphas[time].double()
        mean = self.means[class_labels][:, None, None, None].double()
        x = x.double()
        gain = self.variance * kept.sqrt() / (self.variance * kept + 1 - kept)
        clean = mean + gain * (x - kept.sqrt() * mean)
        noise = (x - kept.sqrt() * clean) / (1 - kept).sqrt()
        if self.prediction == "sample":
            answer = clean
        elif self.prediction == "epsilon":
            answer = noise
        else:
            answer = kept.sqrt() * noise - (1 - kept).sqrt() * clean
        return SimpleNamespace(sample=answer)


def oracle(prediction="v_prediction", deviation=0.0, guidance=1.0, steps=20):
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(prediction_type=prediction, clip_sample=False)
    unet = Oracle(scheduler.alphas_cumprod, prediction, [-0.5, 0.25, 0.0], deviation)
    facts = ImageFacts(False, (4, 4), "L", steps, guidance, 3, ("dark", "bright"), 2)
    rng = np.random.default_rng(0)
    return DiffusionImages(
        unet, scheduler, facts, source="oracle", revision="1", rows_per_pass=64, rng=rng
    )


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_network_that_knows_the_image_gets_it_back(prediction):
    for label, level in (("dark", -0.5), ("bright", 0.25)):
        made = np.stack(oracle(prediction).random(3, label))
        assert np.abs(made - (level + 1) * 127.5).max() <= 1


def test_many_steps_follow_the_distribution():
    made = np.stack(oracle(deviation=0.2, steps=200).random(400, "bright")) / 127.5 - 1
    assert made.mean() == pytest.approx(0.25, abs=0.01)
    assert made.std() == pytest.approx(0.2, rel=0.05)


def test_guidance_goes_from_the_null_class_through_the_label_s():
    made = np.stack(oracle(guidance=3.0).random(2, "bright"))
    assert np.abs(made - (0.0 + 3.0 * 0.25 + 1) * 127.5).max() <= 1


def test_a_variation_leaves_what_the_noise_of_its_degree_leaves():
    """Through noise and back, a normal of deviation s keeps s sqrt(k) / sqrt(s^2 k + 1 - k)."""
    image = np.full((4, 4), 200, np.uint8)
    model, mean = oracle(deviation=0.2, steps=200), (0.25 + 1) * 127.5
    for degree in (0.03, 0.1, 0.2, 0.5):
        kept = float(model._alphas[round(1000 * degree) - 1])
        made = np.stack(model.vary([image] * 100, "bright", degree)).astype(float)
        left = 0.2 * np.sqrt(kept) / np.sqrt(0.04 * kept + 1 - kept)
        assert (made.mean() - mean) / (200 - mean) == pytest.approx(left, abs=0.05)


def test_labels_are_the_folder_s(labeled, colors):
    model = load(labeled)
    for call in (lambda: model.random(1, "cow"), lambda: model.vary(model.random(1, None), "7", 1)):
        with pytest.raises(ModelError, match=r"cat, dog"):
            call()
    assert len(load(colors).random(1, "whatever")) == 1, "no classes: any label"
    assert described(labeled).labels == ("cat", "dog")


def test_an_image_keeps_its_class(tmp_path):
    plain = save_unet(tmp_path, classes=3, own=LABELED | {"guidance": 1})

    def model(**settings):
        return load(plain, image_steps=10, **settings)

    names = ["dog", "cat", "cat", "dog", "dog", "cat"]
    by_class = model().random_of(names, None)
    for name in ("cat", "dog"):
        # The same noise, so that images differ by their class alone.
        alone = model().random(6, name)
        same = [np.array_equal(*pair) for pair in zip(by_class, alone, strict=True)]
        assert same == [name == other for other in names]
    varied = model().vary_of(by_class, names, None, 0.5)
    for name in ("cat", "dog"):
        alone = model().vary(by_class, name, 0.5)
        same = [np.array_equal(*pair) for pair in zip(varied, alone, strict=True)]
        assert same == [name == other for other in names]
    fresh = model().vary_of(by_class, names, None, 1)
    assert all(map(np.array_equal, fresh, model().random_of(names, None)))


def test_classes_are_the_labels_unless_they_are_any(labeled, colors):
    assert load(labeled).classes(5, "cat") is None
    assert set(load(labeled).classes(50, None)) == {"cat", "dog"}, "never the null class"
    foreign = load(labeled, image_class="any")
    assert set(foreign.classes(50, "benign")) == {"cat", "dog"}
    assert len(foreign.random(3, "benign")) == len(foreign.vary(foreign.random(3, "x"), "x", 0.5))
    assert load(colors).classes(5, None) is None
    with pytest.raises(ModelError, match="class 'cow' is not one of"):
        foreign.vary_of(foreign.random(1, None), ["cow"], None, 0.5)


def test_steps_are_those_asked_for(labeled):
    model = load(labeled, image_class="any")
    image, other = model.random(1, None), model.with_steps(20)
    seen = []
    forward = model._unet.forward
    model._unet.forward = lambda x, time, **kw: seen.append(int(time)) or forward(x, time, **kw)
    for generator, calls in ((model, 2), (other, 10)):
        seen.clear()
        generator.vary_of(image, ["cat"], None, 0.5)
        assert len(seen) == calls
        assert max(seen) == 49, "noise up to half of the training's 100 times"


@pytest.mark.parametrize(
    "sample", [np.zeros((7, 8), np.uint8), np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8))]
)
def test_a_foreign_image_is_refused(sample, labeled):
    with pytest.raises(ModelError, match="cannot be varied"):
        load(labeled).vary([sample], "cat", 0.5)
    with pytest.raises(ValueError, match="degree"):
        load(labeled).vary([], "cat", 1.5)


def test_what_shapes_an_image_is_in_the_revision(labeled, prompted):
    def revision(image, **settings):
        return described(image, **settings).revision

    base = revision(labeled)
    assert base == revision(labeled, image_steps=4), "the folder's own"
    assert base != revision(labeled, image_steps=5)
    assert revision(prompted) != revision(prompted, dtype="bfloat16")
    assert load(labeled).revision == base


def test_weights_and_settings_in_subfolders_are_digested(tmp_path):
    folder = save_unet(tmp_path / "m")
    seen = {described(folder).revision}
    for name in ("unet/diffusion_pytorch_model.safetensors", "scheduler/scheduler_config.json"):
        raw = bytearray((folder / name).read_bytes())
        raw = raw.replace(b'"epsilon"', b'"sample"') if name.endswith("json") else raw
        raw[-3] ^= 0 if name.endswith("json") else 1
        (folder / name).write_bytes(raw)
        seen.add(described(folder).revision)
    assert len(seen) == 3


def test_native_size_and_mode(labeled, colors, prompted):
    natives = [described(folder).image for folder in (labeled, colors, prompted, "builtin")]
    assert natives == [(8, 8, "L"), (8, 8, "RGB"), (16, 16, "RGB"), (28, 28, "L")]


WEIGHTS = "unet/diffusion_pytorch_model.safetensors"


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (WEIGHTS, "cut", "truncated"),
        (WEIGHTS, None, "no weights"),
        ("model_index.json", None, "model_index.json is missing"),
        ("privsyn.json", {"labels": ["a", "b", "c", "d"]}, "lists 4 labels for 3 classes"),
        ("privsyn.json", {"labels": ["a"], "null_class": 0}, "null_class=0"),
        ("unet/config.json", {}, "do not fit together"),
        ("privsyn.json", {"pixels_per_block": 2}, "channels in blocks"),
        ("privsyn.json", {"guidance": 2.0}, "guidance=2 and names no null_class"),
    ],
)
def test_a_bad_folder_is_refused_in_one_line(file, content, says, tmp_path):
    folder = save_unet(tmp_path / "m", classes=3)
    if content is None:
        (folder / file).unlink()
    elif content == "cut":
        (folder / file).write_bytes((folder / file).read_bytes()[:-9])
    else:
        (folder / file).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=says) as refused:
        described(folder)
    assert "\n" not in str(refused.value)


def test_stable_diffusion_follows_the_contract(prompted):
    model = load(prompted, image_steps=3)
    images = model.random(5, "cat")
    assert [(image.shape, image.dtype) for image in images] == [((16, 16, 3), np.uint8)] * 5
    assert len({image.tobytes() for image in images}) == 5
    assert all(map(np.array_equal, model.vary(images, "cat", 0.0), images))
    for degree in (0.01, 0.5, 1.0):
        varied = model.vary(images, None, degree)
        assert len(varied) == 5
        assert varied[0].shape == (16, 16, 3)
    same = [load(prompted, image_steps=3).random(2, label) for label in ("x", "x", "y")]
    assert np.array_equal(same[0], same[1])
    assert not np.array_equal(same[0], same[2]), "the label is in the prompt"


def test_a_label_has_its_own_class(labeled):
    cat, dog = (load(labeled).random(3, label) for label in ("cat", "dog"))
    assert not np.array_equal(cat, dog)
    without = load(labeled)
    assert len(without.vary(without.random(3, None), None, 0.5)) == 3


def test_foreign_labels_are_planned_where_classes_are_any(labeled, colors, prompted):
    ours, foreign = described(labeled), described(labeled, image_class="any")
    assert foreign.labels == ()
    assert foreign.revision == f"{ours.revision}+class=any"
    assert foreign.revision == load(labeled, image_class="any").revision
    for image, hint in ((colors, "alike"), (prompted, "Set it to label")):
        with pytest.raises(ModelError, match=r"models\.image_class=any: ") as refused:
            described(image, image_class="any")
        assert hint in (refused.value.hint or "")
