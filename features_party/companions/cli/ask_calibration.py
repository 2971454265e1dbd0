"""`ask-calibration`: scores of a model go to a labels party, and its signed private map comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from features_party.cli.answers import line
from features_party.cli.app import LabelsKey, app, public_key, services
from features_party.cli.door import ApiKeyFile, Url, labels_party, url_option
from features_party.cli.messages import WAIT_SECONDS, OptionalSeconds, WaitForAnswer
from label_dp.cli.commands import command
from label_dp.cli.output import echo, emit, progress
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Json, table_option

if TYPE_CHECKING:
    from label_dp.schemas.calibration import Calibration

SHAPES = (
    "auto (bins), bins, monotone, pieces, linear, "
    "lipschitz, convex, concave or grid; the labels party's calibrate --help tells their options."
)


@command(app, "ask-calibration", AROUND, cls=OptionalSeconds)
def ask_calibration(
    *,
    url: Url = None,
    batch: Annotated[str, typer.Option(help="Id of a batch whose owner allows calibrations (ask it).")],
    asked: Calibration,
    features: Annotated[
        Any,
        table_option(
            "--features", "--examples", "--scores", help="Parquet or CSV file of features of examples, or of scores."
        ),
    ],
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")],
    model: Annotated[
        str | None, typer.Option(help="Folder of a model, or an id of the registry: its predictions are the scores.")
    ] = None,
    score_column: Annotated[str | None, typer.Option(help="Instead of a model: the file's column with scores.")] = None,
    score_2_column: Annotated[
        str | None, typer.Option(help="With --score-column: that with second scores, for a map of two.")
    ] = None,
    wait: WaitForAnswer = WAIT_SECONDS,
    labels_key: LabelsKey = None,
    api_key_file: ApiKeyFile = None,
    as_json: Json = False,
) -> None:
    """Ask a labels party for a calibration of a model, within the ε that its owner allows; then fetch and account for
    it. `calibrate --map` applies it.

    The batch is charged as soon as the scores are there. The same command again gets the same answer, charged once.
    """
    from features_party.companions.files import AskJob, ask_and_pull

    columns = tuple(name for name in (score_column, score_2_column) if name is not None)
    job = AskJob(batch, asked, features, id_column, model, columns, labels_key=public_key(labels_key), wait=wait)
    job.check()
    with progress("ask", as_json) as report, labels_party(url, api_key_file) as service:
        calibration_run = ask_and_pull(services(), service, job, report)
    emit(calibration_run.as_json() | {"batch": batch}, as_json, lambda: _show(calibration_run, url, model or "MODEL"))


def _show(asked: Any, url: str | None, model: str) -> None:
    sent = f"{asked.rows:,} scores sent"
    if asked.found is None:
        echo(f"calibration {asked.name} is {asked.state}; {sent}")
        echo(f"fetch it: features-party pull{url_option(url)} --answer {asked.name} --wait")
        return
    echo(f"{line(asked.found)}; {sent}")
    if asked.delivery is not None:
        echo(asked.delivery.sentence)
    echo(f"apply it: features-party calibrate --map {asked.name} --model {model} --out FOLDER")
