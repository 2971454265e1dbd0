"""`codes` and `ask-sums`: columns of ours go to a labels party, and the sums of its labels in every group come back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features_party.cli.answers import line
from features_party.cli.app import LabelsKey, app, public_key, services
from features_party.cli.door import ApiKeyFile, Url, labels_party, url_option
from features_party.cli.messages import WAIT_SECONDS, OptionalSeconds, WaitForAnswer
from label_dp.cli.answers import show_result
from label_dp.cli.commands import command
from label_dp.cli.output import echo, emit, progress, table
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Force, Json, table_option

if TYPE_CHECKING:
    from features_party.companions.files import AnswerRun
    from label_dp.schemas.sums import GroupSums


@command(app, "codes", AROUND)
def codes(
    *,
    features: Annotated[Any, table_option(help="Parquet or CSV of features, or a lake table.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")],
    epsilon: Annotated[str, typer.Option(help="ε that the sums will have; the smaller, the fewer columns share it.")],
    out: Annotated[Path, typer.Option(help="Table of ids and codes to write (.parquet).")],
    cross: Annotated[
        list[str] | None, typer.Option(help="Two columns whose pairs of codes are asked for too; repeatable.")
    ] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="Column to treat as a category; repeatable.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Column to leave out; repeatable.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make public codes of features, bins and frequent values, for a model of sums at a small ε.

    Nothing is sent and no label is read. Of all columns those are kept whose sums should tell most at that ε. What
    ask-sums sends of this table is no longer feature-oblivious: the labels party gets the codes of every id.
    """
    from features_party.companions.codes import make_codes

    options = {"categorical": categorical or (), "exclude": exclude or ()}
    with progress("codes", as_json) as report:
        facts = make_codes(features, id_column, epsilon, out, cross or (), report, force=force, **options)
    emit(facts, as_json, lambda: _show_codes(facts))


def _show_codes(facts: dict[str, Any]) -> None:
    rows = [[by, f"{levels:,}"] for by, levels in zip(facts["by"], facts["levels"], strict=True)]
    table(f"Codes of {facts['rows']:,} rows: what ask-sums would send", ["by", "levels"], rows)
    if facts["left_out"]:
        echo(f"left out: {', '.join(facts['left_out'])}")
    echo(f"with as many rows and codes, sums tell more than a message below ε {facts['sums_below']:.2g} or so")
    echo(f"next: features-party ask-sums --url URL --batch BATCH --features {facts['codes']} --id-column … --epsilon …")


@command(app, "ask-sums", AROUND, cls=OptionalSeconds)
def ask_sums(
    *,
    url: Url = None,
    batch: Annotated[str, typer.Option(help="Id of a batch whose owner allows sums (ask it).")],
    terms: GroupSums,
    features: Annotated[
        Path,
        typer.Option(
            help="Parquet or CSV file of features; only columns of --by are sent, or all codes of a table of codes."
        ),
    ],
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")],
    wait: WaitForAnswer = WAIT_SECONDS,
    labels_key: LabelsKey = None,
    api_key_file: ApiKeyFile = None,
    as_json: Json = False,
) -> None:
    """Ask a labels party for sums and means of its labels by columns of ours, within the ε that its owner allows; then
    fetch and account for them.

    The columns of --by and the ids leave us. The batch is charged as soon as they are there. The same command again
    gets the same answer, charged once.
    """
    from features_party.companions.files import AskSumsJob
    from features_party.companions.files import ask_sums as ask
    from label_dp.companions.kinds.sum import tables

    job = AskSumsJob(batch, terms, features, id_column, labels_key=public_key(labels_key), wait=wait)
    with progress("ask", as_json) as report, labels_party(url, api_key_file) as service:
        run = ask(services(), service, job, report)
    groupings = [] if run.found is None else tables(run.found.answer)
    emit(run.as_json() | {"batch": batch, "tables": groupings}, as_json, lambda: _show(run, url, groupings))


def _show(run: AnswerRun, url: str | None, groupings: list[dict[str, Any]]) -> None:
    if run.found is None:
        echo(f"sums {run.name} are {run.state}; {run.rows:,} rows sent")
        echo(f"fetch them: features-party pull{url_option(url)} --answer {run.name} --wait")
        return
    echo(f"{line(run.found)}; {run.rows:,} rows sent")
    if run.delivery is not None:
        echo(run.delivery.sentence)
    show_result({}, {"tables": groupings})
