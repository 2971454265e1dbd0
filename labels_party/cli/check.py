"""`check`: a look at a file of labels on its owner's machine, before anything is sent or charged."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from label_dp.cli.numbers import whole
from label_dp.cli.output import emit, progress, say
from label_dp.cli.party_commands import Json, table_option
from labels_party.cli.app import app


@app.command()
def check(
    labels: Annotated[Any, table_option(help="Parquet or CSV with ids and labels, or a lake table, as for privatize.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")],
    label_column: Annotated[str, typer.Option(help="Its column with labels.")],
    domain: Annotated[
        str | None, typer.Option(help="The domain that you mean to declare; without one, one is suggested.")
    ] = None,
    unit_column: Annotated[
        str | None, typer.Option(help="Column with the person (or other unit) behind each example.")
    ] = None,
    max_examples_per_unit: Annotated[
        int | None,
        typer.Option(
            parser=whole("--max-examples-per-unit", 1),
            metavar="INTEGER",
            help="Examples of a unit that keep their label.",
        ),
    ] = None,
    examples: Annotated[Any | None, table_option(help="File that lists all example ids.")] = None,
    missing_label: Annotated[str | None, typer.Option(help="Label of listed examples that have none.")] = None,
    out_of_domain: Annotated[
        Literal["clip", "refuse"] | None,
        typer.Option(help="What is to become of labels outside the domain; clip by default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a file of labels: nothing is sent, stored or charged. What it shows is NOT private and stays with you.

    Exit code 1: privatize would refuse the file as it is.
    """
    from labels_party.files.frames import check as look
    from labels_party.labels.file_sentences import NOTICE

    with progress("check", as_json) as report:
        report("reading", 0.1)
        checked = look(
            labels,
            id=id_column,
            label=label_column,
            domain=domain,
            unit_column=unit_column,
            max_examples_per_unit=max_examples_per_unit,
            examples=examples,
            missing_label=missing_label,
            out_of_domain=out_of_domain,
        )

    def human() -> None:
        say(NOTICE)
        say(f"{checked.found.ids.rows:,} rows, {checked.found.ids.distinct:,} different ids.")
        for sentence in checked.says:
            say(sentence, indent=2)
        for sentence in checked.refused:
            say(f"privatize would refuse it: {sentence}", indent=2)
        if not checked.refused:
            say("privatize would take it as it is.")

    emit(checked.as_json(), as_json, human)
    if checked.refused:
        raise SystemExit(1)
