"""`keys`: the keys of this home that can be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from label_dp.cli.output import confirm, echo, emit, warn
from label_dp.cli.panels import ADMINISTRATION
from label_dp.cli.party_commands import Force, Json, Yes
from label_dp.documents.canonical import canonical_bytes
from label_dp.store.output_files import replacing
from labels_party.cli.app import app, services

keys = typer.Typer(help="Change the keys of this home.", no_args_is_help=True)
app.add_typer(keys, name="keys", rich_help_panel=ADMINISTRATION)


@keys.command("rotate-wrapping")
def rotate_wrapping(
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only make the next key, to copy it to replicas that share no folder.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Wrap the keys of all batches under a new key; no label is written again, and the old key is removed.

    Services may run. Older copies of the database then open no label any more.
    """
    party = services(existing=True)
    if prepare:
        number, count = party.keys.prepare(), 0
    else:
        confirm("The old wrapping key is erased, and older copies of the database open no label any more.", yes)
        number, count = party.keys.rotate()
    path = party.keys.wrapping.called(number)
    done = "made, and used for nothing yet" if prepare else f"wraps the keys of {count:,} batches"
    emit({"wrapping_key": path, "batches": count, "used": not prepare}, as_json, lambda: echo(f"{path}: {done}"))


@keys.command("rotate-signing")
def rotate_signing(
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only make the next key, to copy it to replicas that share no folder.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Hand over from the signing key to a new one, in a document that the old key signs; the old key is erased.

    Services may run. Receivers that pinned the old key follow by themselves at their next pull, and what the old key
    signed stays valid.
    """
    from labels_party.storage.signing import next_path

    party = services(existing=True)
    if prepare:
        following, path = party.own_keys.prepare().public.id, next_path(party.home.private_key)
        told: dict[str, object] = {"key_id": following, "private_key": str(path), "used": False}
        emit(told, as_json, lambda: echo(f"{path}: made, and used for nothing yet"))
        return
    confirm("The signing key is erased once a new one follows it.", yes)
    found = party.own_keys.rotate("cli")
    now, kept = party.home.public_key, party.own_keys.public_file(found.old)
    told = {"key_id": found.new.id, "before": found.old.id, "public_key": str(now), "used": True}
    said = f"{found.new.id}\n{now}: signs since {found.day}\n{kept}: verifies what was signed before"
    emit(told | {"public_key_before": str(kept)}, as_json, lambda: echo(said))
    warn("make a backup now: those of before need the old key, which is erased")


@keys.command("hand-overs")
def keys_hand_overs(
    out: Annotated[Path, typer.Option(help="File for them, for receivers that reach no service of ours.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the signed hand-overs of our signing keys, from the first key to the one that signs now."""
    told = services(existing=True).own_keys.told()
    with replacing(out, force) as path:
        path.write_bytes(canonical_bytes(told))
    emit({"hand_overs": len(told["hand_overs"]), "out": str(out)}, as_json, lambda: echo(out))
