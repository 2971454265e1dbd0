"""`ask-calibration`: scores of a model go to a labels party, and its signed private map comes back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from features_party.cli.answers import line
from features_party.cli.app import FilePath, Json, LabelsKey, app, public_key, services
from features_party.cli.door import ApiKey, labels_party
from features_party.cli.messages import WAIT_SECONDS, OptionalSeconds
from shared.service.cli import emit, progress

SHAPES = (
    "auto (bins; if the loss is absolute monotone, or grid of two scores), bins, monotone, pieces, linear, "
    "lipschitz, convex, concave or grid; the labels party's calibrate --help tells their options."
)


@app.command("ask-calibration", cls=OptionalSeconds)
def ask_calibration(
    url: Annotated[str, typer.Option(help="The labels party's service, for example http://127.0.0.1:8001.")],
    batch: Annotated[str, typer.Option(help="Id of a batch whose owner allows calibrations (ask it).")],
    epsilon: Annotated[str, typer.Option(help="ε of the calibration; the whole batch is charged.")],
    features: Annotated[
        FilePath,
        typer.Option(
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
    loss: Annotated[str, typer.Option(help="squared (means) or absolute (medians).")] = "squared",
    shape: Annotated[str, typer.Option(help=SHAPES)] = "auto",
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of the shape; repeatable.")] = None,
    numbers: Annotated[
        str, typer.Option(help="How scores are numbered: float32 (any scale), or LO:HI:STEPS.")
    ] = "float32",
    numbers_2: Annotated[str | None, typer.Option(help="The same for second scores (float32 if not given).")] = None,
    additional_release: Annotated[
        bool, typer.Option("--additional-release", help="Charge on top of what the batch carries already.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="[SECONDS]",
            help="How long to wait until it is published, an hour by default; 0 only asks.",
            min=0,
            show_default=False,
        ),
    ] = WAIT_SECONDS,
    labels_key: LabelsKey = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Ask a labels party for a calibration of a model, within the ε that its owner allows; then fetch and account for
    it. `calibrate --map` applies it.

    The batch is charged as soon as the scores are there. The same command again gets the same answer, charged once.
    """
    from features_party.asking import AskJob, Terms, run
    from shared.privacy import Epsilon

    columns = tuple(name for name in (score_column, score_2_column) if name is not None)
    terms = Terms(
        batch=batch,
        epsilon=Epsilon.parse(epsilon, positive=True),
        loss=loss,
        shape=shape,
        options=tuple(option or ()),
        numbers=numbers,
        numbers_2=numbers_2,
        additional_release=additional_release,
    )
    job = AskJob(terms, features, id_column, model, columns, public_key(labels_key), wait)
    job.check()
    with progress("ask", as_json) as report, labels_party(url, api_key) as service:
        asked = run(services(), service, job, report)
    emit(asked.as_json() | {"batch": batch}, as_json, lambda: _show(asked, url))


def _show(asked: Any, url: str) -> None:
    sent = f"{asked.scores:,} scores sent"
    if asked.found is None:
        typer.echo(f"calibration {asked.name} is {asked.state}; {sent}")
        typer.echo(f"fetch it: features-party pull --url {url} --answer {asked.name} --wait")
        return
    typer.echo(f"{line(asked.found)}; {sent}")
    if asked.delivery is not None:
        typer.echo(asked.delivery.sentence)
    typer.echo(f"apply it: features-party calibrate --map {asked.name} --model MODEL --out FOLDER")
