"""`privsyn keys`: the key that signs releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privsyn.cli.options import PARAMS, Params, context_of, out
from privsyn.release.workspace import Workspace
from privsyn.tables import Verbatim, facts

keys_app = typer.Typer(help="The key that signs releases.", no_args_is_help=True)


@keys_app.command("new")
def keys_new(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="Where the private key goes. By default signing.key of params.yaml, else the "
            "user's config folder.",
        ),
    ] = None,
    params: Params = PARAMS,
) -> None:
    """Make a key: PATH with mode 0600, and the public key beside it. Never overwrites.

    Encrypted where PRIVSYN_SIGNING_PASSPHRASE is set: signing needs that variable then, too.
    """
    from platformdirs import user_config_path

    from privsyn.release.signing_key import new

    configured, refused = None, Workspace(params.absolute().parent).published
    if params.is_file():
        ctx = context_of(params, None)
        named = ctx.config.signing.file
        configured = None if named is None else ctx.path(named)
    file = path or configured or user_config_path("privsyn") / "signing.pem"
    anywhere = configured is not None and file.resolve() == configured.resolve()
    public, name = new(file, refused=refused, anywhere=anywhere)
    rows = {
        "private key": f"{file} (keep it; whoever has it signs as you)",
        "public key": f"{public} (hand it out)",
        "key id": name,
    }
    if not anywhere:
        rows["to sign releases"] = f"set signing.key: {file.absolute()}"
    facts(out, {key: Verbatim(value) for key, value in rows.items()}, title="New signing key")


@keys_app.command("show")
def keys_show(path: Annotated[Path, typer.Argument(help="A public key in PEM.")]) -> None:
    """Print the id of a public key, as `privsyn verify` names it."""
    from privsyn.release.signature import public_key

    print(public_key(path).keyid)
