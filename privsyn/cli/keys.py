"""`privsyn keys`: signing and vault keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privsyn.cli.options import PARAMS, Params, context_of, out
from privsyn.display.tables import Verbatim, facts
from privsyn.errors import at_home
from privsyn.release.workspace import Workspace

keys_app = typer.Typer(help="Manage signing and vault keys.", no_args_is_help=True)


@keys_app.command("new")
def keys_new(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="Where the private key goes. By default signing.key of params.yaml "
            "(services.vault_key), else the user's config folder.",
        ),
    ] = None,
    vault: Annotated[
        bool, typer.Option("--vault", help="The vault's key in place of the signing one.")
    ] = False,
    params: Params = PARAMS,
) -> None:
    """Make a key: PATH with mode 0600, and the public key beside it. Never overwrites.

    Encrypted where PRIVSYN_SIGNING_PASSPHRASE is set: signing needs that variable then, too. With
    --vault it is the key that every machine of a deployment needs which draws releases in a vault.
    """
    from platformdirs import user_config_path

    from privsyn.release.signature import new
    from privsyn.vault.vault import VARIABLE, new_key

    configured, refused = None, Workspace(params.absolute().parent).published
    if params.is_file():
        ctx = context_of(params, None)
        named = ctx.config.services.vault_key if vault else ctx.config.signing.file
        configured = None if named is None else ctx.path(named)
    file = path or configured
    if file is None:
        # Looked up only where no place was named: a container may have no home.
        with at_home():
            file = user_config_path("privsyn") / ("vault.key" if vault else "signing.pem")
    # A place that the settings name was chosen by the operator, who may keep keys in a repository.
    anywhere = configured is not None and file.resolve() == configured.resolve()
    if vault:
        rows = {
            "key of the vault": f"{file} (whoever has it, the vault and the ledger reads records)",
            "key id": new_key(file, refused=refused, anywhere=anywhere),
            "on every machine": f"set services.vault_key: {file.absolute()}, or {VARIABLE} to "
            "what the file holds",
        }
        facts(out, {key: Verbatim(value) for key, value in rows.items()}, title="New vault key")
        return
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
