"""`ask-sums`: columns of ours go to a labels party, and the sums of its labels in every group come back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features_party.cli.answers import line
from features_party.cli.app import LabelsKey, app, public_key, services
from features_party.cli.door import ApiKeyFile, Url, labels_party
from features_party.cli.messages import WAIT_SECONDS, OptionalSeconds, WaitForAnswer
from label_dp.cli.answers import show_result
from label_dp.cli.commands import command
from label_dp.cli.output import echo, emit, progress
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Json

if TYPE_CHECKING:
    from features_party.companions.files import AnswerRun
    from label_dp.schemas.sums import GroupSums


@command(app, "ask-sums", AROUND, cls=OptionalSeconds)
def ask_sums(
    *,
    url: Url,
    batch: Annotated[str, typer.Option(help="Id of a batch whose owner allows sums (ask it).")],
    terms: GroupSums,
    features: Annotated[Path, typer.Option(help="Parquet or CSV file of features; only columns of --by are sent.")],
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
    from features_party.companions import sums

    job = sums.AskSumsJob(batch, terms, features, id_column, labels_key=public_key(labels_key), wait=wait)
    with progress("ask", as_json) as report, labels_party(url, api_key_file) as service:
        run = sums.ask_sums(services(), service, job, report)
    groupings = [] if run.found is None else sums.tables(run.found.answer)
    emit(run.as_json() | {"batch": batch, "tables": groupings}, as_json, lambda: _show(run, url, groupings))


def _show(run: AnswerRun, url: str, groupings: list[dict[str, Any]]) -> None:
    if run.found is None:
        echo(f"sums {run.name} are {run.state}; {run.rows:,} rows sent")
        echo(f"fetch them: features-party pull --url {url} --answer {run.name} --wait")
        return
    echo(f"{line(run.found)}; {run.rows:,} rows sent")
    if run.delivery is not None:
        echo(run.delivery.sentence)
    show_result({}, {"tables": groupings})
