"""Fresh images and variations by diffusion models that ``diffusers`` saved.

RANDOM is a sampling run. VARIATION is SDEdit (Meng et al. 2022): it adds noise up to the time of
the degree, then removes it. Lin et al. 2024, section 4, use both in this way. Randomness is public
and comes from the operating system unless a test passes its own.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from privsyn.errors import ModelError
from privsyn.models.images.image_folders import ImageFacts, as_pair, refuse_unknown_label

Pixels = NDArray[np.uint8]


class DiffusionImages:
    """A U-Net over pixels, sampled by DDIM (Song et al. 2021, eq. 12, eta 0), class by class.

    A model without classes ignores the label. Of a class-conditional model the label is the class.
    Without a label, or where its classes are not the labels, each image is of a class of its own
    (``OwnClasses``). To vary an image without either it takes its null class, if it has one.

    Args:
        unet: A ``UNet2DModel`` in eval mode on its device.
        scheduler: Any scheduler of diffusers with ``alphas_cumprod``. It gives the noise schedule
            and the kind of prediction; its sampler is not used.
        facts: Size, classes, steps and guidance.
        source: The model's name in messages.
        revision: Digest of files and settings.
        rows_per_pass: Images per forward pass.
        rng: Public randomness; by default from the operating system.

    Raises:
        ModelError: The scheduler has no such schedule, or the network predicts something unknown.
    """

    def __init__(
        self,
        unet: Any,
        scheduler: Any,
        facts: ImageFacts,
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
        rng: np.random.Generator | None = None,
    ) -> None:
        alphas = getattr(scheduler, "alphas_cumprod", None)
        self._prediction = scheduler.config.get("prediction_type", "epsilon")
        if alphas is None or self._prediction not in ("epsilon", "sample", "v_prediction"):
            raise ModelError(
                f"{source}: {type(scheduler).__name__} predicting {self._prediction} is not known.",
                hint="Name a model with a DDPM or DDIM scheduler.",
            )
        self.revision = revision
        self._unet, self._facts, self._source = unet, facts, source
        self._alphas = alphas.double().numpy()
        clips = scheduler.config.get("clip_sample", False)
        self._limit = float(scheduler.config.get("clip_sample_range", 1.0)) if clips else math.inf
        self._rows = rows_per_pass
        self._rng = rng or np.random.default_rng()  # public randomness

    def random(self, count: int, label: str | None) -> list[Pixels]:
        """``count`` fresh images of a label.

        Raises:
            ModelError: The model is class-conditional and does not know the label.
        """
        return self._sample(None, self._numbers(label, count, fresh=True), 1.0, count)

    def vary(self, samples: Sequence[Pixels], label: str | None, degree: float) -> list[Pixels]:
        """One variation of each image, by noise up to ``degree``.

        Raises:
            ModelError: The label is unknown, or an image has another size or mode than the model.
        """
        return self._vary(samples, self._numbers(label, len(samples), fresh=degree == 1), degree)

    def classes(self, count: int, label: str | None) -> list[str] | None:
        """A random class for each of ``count`` images; None where the label is the class."""
        facts = self._facts
        if not facts.classes or (label is not None and not facts.any_class):
            return None
        return [facts.labels[i] for i in self._rng.integers(0, len(facts.labels), count)]

    def random_of(self, classes: Sequence[str], label: str | None) -> list[Pixels]:
        """One fresh image of each class.

        Raises:
            ModelError: The model does not know a class.
        """
        return self._sample(None, self._numbers_of(classes), 1.0, len(classes))

    def vary_of(
        self, samples: Sequence[Pixels], classes: Sequence[str], label: str | None, degree: float
    ) -> list[Pixels]:
        """One variation of each image, of its class; at degree 1 a fresh image of its class.

        Raises:
            ModelError: A class is unknown, or an image has another size or mode than the model.
        """
        return self._vary(samples, self._numbers_of(classes), degree)

    def with_steps(self, steps: int) -> Self:
        """The same generator with so many denoising steps for a fresh image."""
        other = copy.copy(self)
        other._facts = replace(self._facts, steps=steps)
        return other

    def _vary(
        self, samples: Sequence[Pixels], numbers: NDArray[np.int64] | None, degree: float
    ) -> list[Pixels]:
        if not 0 <= degree <= 1:
            raise ValueError(f"degree={degree} is outside [0, 1]")
        height, width = self._facts.size
        shape = (height, width) if self._facts.mode == "L" else (height, width, 3)
        for sample in samples:
            if sample.shape != shape or sample.dtype != np.uint8:
                raise ModelError(
                    f"{self._source}: an image of shape {sample.shape} ({sample.dtype}) cannot be "
                    f"varied; the model's are {shape} (uint8).",
                    hint="Vary images this model made.",
                )
        if degree == 0:
            return [sample.copy() for sample in samples]
        return self._sample(None if degree == 1 else samples, numbers, degree, len(samples))

    def _sample(
        self,
        samples: Sequence[Pixels] | None,
        numbers: NDArray[np.int64] | None,
        degree: float,
        count: int,
    ) -> list[Pixels]:
        """``count`` images in passes; fresh ones where there are no samples to vary."""
        images: list[Pixels] = []
        for start in range(0, count, self._rows):
            part = slice(start, min(start + self._rows, count))
            given = None if samples is None else np.stack(samples[part])
            classes = None if numbers is None else numbers[part]
            images += self._denoise(given, classes, degree, part.stop - start)
        return images

    def _numbers_of(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of classes, shape (classes,)."""
        places = {label: place for place, label in enumerate(self._facts.labels)}
        for name in classes:
            if name not in places:
                refuse_unknown_label(self._facts.labels, name, self._source, "class")
        return np.array([places[name] for name in classes], np.int64)

    def _numbers(self, label: str | None, rows: int, *, fresh: bool) -> NDArray[np.int64] | None:
        """The class of each image by its label, shape (rows,); None of a model without classes."""
        facts = self._facts
        if not facts.classes:
            return None
        if label is not None and not facts.any_class:
            refuse_unknown_label(facts.labels, label, self._source)
            return np.full(rows, facts.labels.index(label))
        if facts.null_class is not None and not fresh:
            return np.full(rows, facts.null_class)
        return self._rng.integers(0, len(facts.labels), rows)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _denoise(
        self,
        images: Pixels | None,
        classes: NDArray[np.int64] | None,
        degree: float,
        rows: int,
    ) -> list[Pixels]:
        """Add noise up to the time of ``degree`` (pure noise without images), then remove it."""
        top = max(1, round(degree * len(self._alphas)))
        grid = np.linspace(top, 0, max(1, round(degree * self._facts.steps)) + 1)
        times = [*(round(t) - 1 for t in grid[:-1]), -1]
        device, config = self._unet.device, self._unet.config
        shape = (rows, config.in_channels, *as_pair(config.sample_size))
        noise = self._rng.standard_normal(shape, dtype=np.float32)
        # (rows, channels, height, width); noise from the CPU, so that every device draws the same.
        x = torch.from_numpy(noise).to(device, memory_format=torch.channels_last)
        if images is not None:
            # q(x_t | x_0): sqrt(alpha) of the image plus sqrt(1 - alpha) of noise.
            alpha = self._alphas[times[0]]
            x = math.sqrt(alpha) * self._signal(images).to(device) + math.sqrt(1 - alpha) * x
        given = None if classes is None else torch.from_numpy(classes).to(device)
        for time, following in itertools.pairwise(times):
            alpha = float(self._alphas[time])
            kept_next = float(self._alphas[following]) if following >= 0 else 1.0
            clean = self._clean(x, self._predict(x, time, given), alpha)
            noise_left = (x - math.sqrt(alpha) * clean) / math.sqrt(max(1 - alpha, 1e-12))
            x = math.sqrt(kept_next) * clean + math.sqrt(1 - kept_next) * noise_left
        return self._pixels(x)

    def _predict(self, x: Tensor, time: int, classes: Tensor | None) -> Tensor:
        """The network's output, with classifier-free guidance where the model has a null class."""
        facts = self._facts
        if classes is None or facts.guidance == 1 or facts.null_class is None:
            return self._forward(x, time, classes)
        none = torch.full_like(classes, facts.null_class)
        # One pass for both: (2 rows, channels, height, width), first without, then with the class.
        pair = self._forward(torch.cat([x, x]), time, torch.cat([none, classes]))
        without, with_class = pair.chunk(2)
        return without + facts.guidance * (with_class - without)

    def _forward(self, x: Tensor, time: int, classes: Tensor | None) -> Tensor:
        options = {} if classes is None else {"class_labels": classes}
        scale = self._facts.time_scale
        # A tensor, since diffusers cuts a float to a whole number.
        at = time if scale == 1 else torch.tensor(time * scale, device=x.device)
        out: Tensor = self._unet(x, at, **options).sample
        return out[:, : x.shape[1]].float()  # channels after these are a learned variance

    def _clean(self, x: Tensor, predicted: Tensor, alpha: float) -> Tensor:
        """The noise-free image that a prediction implies, clipped as in the model's training."""
        if self._prediction == "sample":
            clean = predicted
        elif self._prediction == "v_prediction":
            clean = math.sqrt(alpha) * x - math.sqrt(1 - alpha) * predicted
        else:
            clean = (x - math.sqrt(1 - alpha) * predicted) / math.sqrt(alpha)
        return clean.clamp(-self._limit, self._limit)

    def _signal(self, images: Pixels) -> Tensor:
        """Bytes (n, h, w[, 3]) to [-1, 1], (n, channels, h / block, w / block)."""
        planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        scaled = torch.from_numpy(np.ascontiguousarray(planes)).float() / 127.5 - 1
        return F.pixel_unshuffle(scaled, self._facts.block)

    def _pixels(self, x: Tensor) -> list[Pixels]:
        """The reverse of ``_signal``: [-1, 1] to bytes."""
        planes = F.pixel_shuffle(x.float(), self._facts.block)
        # Half precision may give NaN, which has no byte: those pixels become 0.
        bytes_ = ((planes + 1) * 127.5).round().clamp(0, 255).nan_to_num(0).byte().cpu().numpy()
        arranged = bytes_[:, 0] if self._facts.mode == "L" else bytes_.transpose(0, 2, 3, 1)
        return [np.ascontiguousarray(image) for image in arranged]


class PromptedImages:
    """A text-to-image pipeline of diffusers and its image-to-image twin (Stable Diffusion).

    The prompt is the label, and empty without one.

    Args:
        text_to_image: The pipeline, as ``AutoPipelineForText2Image`` makes it.
        image_to_image: Its twin over the same weights.
        facts: Size, steps and guidance.
        revision: Digest of files and settings.
        rows_per_pass: Images per call of the pipeline.
        rng: Public randomness; by default from the operating system.
    """

    def __init__(
        self,
        text_to_image: Any,
        image_to_image: Any,
        facts: ImageFacts,
        *,
        revision: str,
        rows_per_pass: int,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.revision = revision
        self._fresh, self._again, self._facts = text_to_image, image_to_image, facts
        self._rows = rows_per_pass
        self._rng = rng or np.random.default_rng()  # public randomness

    def random(self, count: int, label: str | None) -> list[Pixels]:
        """``count`` fresh images of a label."""
        height, width = self._facts.size
        options = {"height": height, "width": width, "num_inference_steps": self._facts.steps}
        images: list[Pixels] = []
        for start in range(0, count, self._rows):
            rows = min(self._rows, count - start)
            images += self._run(self._fresh, rows, label, options)
        return images

    def vary(self, samples: Sequence[Pixels], label: str | None, degree: float) -> list[Pixels]:
        """One variation of each image, by image-to-image at strength ``degree``."""
        from PIL import Image

        if not 0 <= degree <= 1:
            raise ValueError(f"degree={degree} is outside [0, 1]")
        if degree == 0:
            return [sample.copy() for sample in samples]
        if degree == 1:
            return self.random(len(samples), label)
        # A pipeline runs int(steps * strength) steps and fails at 0: keep at least one.
        most = int(self._again.scheduler.config.get("num_train_timesteps", 1000))
        steps = min(max(self._facts.steps, math.ceil(1 / degree)), most)
        options = {"strength": max(degree, 1.001 / steps), "num_inference_steps": steps}
        images: list[Pixels] = []
        for start in range(0, len(samples), self._rows):
            part = samples[start : start + self._rows]
            given = [Image.fromarray(sample).convert("RGB") for sample in part]
            images += self._run(self._again, len(part), label, {"image": given, **options})
        return images

    def with_steps(self, steps: int) -> Self:
        """The same generator with so many denoising steps for a fresh image."""
        other = copy.copy(self)
        other._facts = replace(self._facts, steps=steps)
        return other

    def _run(self, pipeline: Any, count: int, label: str | None, options: Any) -> list[Pixels]:
        seed = int(self._rng.integers(2**63))
        made = pipeline(
            prompt=[label or ""] * count,
            guidance_scale=self._facts.guidance,
            generator=torch.Generator().manual_seed(seed),
            output_type="np",
            **options,
        ).images
        return [
            (np.nan_to_num(image) * 255).round().clip(0, 255).astype(np.uint8) for image in made
        ]
