"""`rehearse`: a made-up message over our own ids, so that a pipeline can be built before any contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features_party.cli.app import Features, app
from label_dp.cli.output import echo, emit, progress
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Force, Json


@app.command(rich_help_panel=AROUND)
def rehearse(
    features: Features,
    domain: Annotated[
        str, typer.Option(help="The label domain to expect: LO:HI[:STEP], binary, or names with commas between them.")
    ],
    epsilon: Annotated[str, typer.Option(help="The ε to expect; nothing is spent.")],
    out: Annotated[
        Path,
        typer.Option(help="The message to write (.parquet), its manifest and its throw-away key (.pub) beside it."),
    ] = Path("rehearsal.parquet"),
    id_column: Annotated[
        str | None, typer.Option(help="The column with example ids; default the first column.", show_default=False)
    ] = None,
    label: Annotated[str, typer.Option(help="What to call the label.")] = "label",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make up a signed message over our own ids, at no ε, to build and size a pipeline before any contract.

    Its labels are random, so a model learns nothing from it. It is marked as a rehearsal inside its signature: join,
    train, evaluate and verify take it with --labels-key, and no audit store counts it.
    """
    from features_party.bootstrap import reader
    from features_party.files import rehearsal
    from label_dp.domain import Domain
    from label_dp.privacy import Epsilon

    spent = Epsilon.parse(epsilon, positive=True)
    rehearsing = rehearsal.Rehearsing(
        features, id_column, Domain.parse(domain), spent, out, label, reader()[0].name, force
    )
    with progress("rehearse", as_json) as report:
        data = rehearsal.rehearse(rehearsing, report)

    def human() -> None:
        echo(f"{out}: a rehearsal of {data['rows']:,} rows ({data['bytes']:,} bytes) at ε {spent}; nothing is spent")
        echo(f"go on with: --message {out} --labels-key {data['labels_key']} --id-column {data['id_column']}")

    emit(data, as_json, human)
