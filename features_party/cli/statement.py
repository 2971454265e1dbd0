"""`statement`: one printable page about a message."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features_party.cli.app import LabelsKey, app, public_key
from label_dp.cli.output import echo, emit
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Force, Json
from label_dp.store.output_files import replacing, writable


@app.command(rich_help_panel=OFFICER)
def statement(
    path: Annotated[Path, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder.")],
    out: Annotated[Path, typer.Option(help="Where the page goes (.html).")],
    labels_key: LabelsKey = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Verify a message and write its statement: what came, from whom, what ε means, what may be inferred."""
    from features_party.bootstrap import reader
    from features_party.receive.accepted import read_prior
    from label_dp.documents.bundle import Bundle, verify
    from label_dp.documents.statement import render_statement

    writable(out, force)
    settings, pinned = reader()
    verified_message = verify(
        path, public_key(labels_key) or pinned.for_envelope(Bundle(path).envelope()), settings.name
    )
    prior = (
        None
        if verified_message.prior_path is None
        else read_prior(verified_message.prior_path, verified_message.manifest)
    )
    page = render_statement(verified_message.manifest, verified_message.digest, prior)
    with replacing(out, force) as target:
        target.write_text(page, "utf-8")
    emit({"release": verified_message.manifest.id, "statement": str(out)}, as_json, lambda: echo(out))
