"""Which encoder measures a release of images: never the one that cast its votes."""

from __future__ import annotations

from privsyn.errors import ModelError
from privsyn.methods.base import Role
from privsyn.models.images.image_folders import check_encoder
from privsyn.models.model_identity import fingerprint, locate
from privsyn.models.references import ModelReference
from privsyn.release.plan import Plan
from privsyn.stages.base import Context

_VOTER: Role = "image_embedder"
"""The role whose model casts votes over images."""


def measuring_encoder(ctx: Context) -> ModelReference:
    """The encoder that the settings name."""
    return ModelReference.measuring_encoder(ctx.config.evaluate.image_encoder)


def why_no_encoder(ctx: Context, plan: Plan) -> str | None:
    """Why no encoder can measure a release of images, in words; None where one can.

    Images that an encoder chose lie where it looks for them: its own distances flatter. So an
    encoder is refused by the digest of its files, under whatever name. Reads no record: what it
    says depends on settings and on the models of this machine.
    """
    wanted = measuring_encoder(ctx)
    try:
        own = fingerprint(locate(wanted, check_encoder), ctx.workspace.cache)
    except ModelError as error:
        return f"{error.message} {error.hint or ''}".strip()
    voter = plan.models.get(_VOTER)
    if voter is not None and voter.revision == own:
        return f"{wanted} cast the votes of this release. Name another in evaluate.image_encoder."
    return None
