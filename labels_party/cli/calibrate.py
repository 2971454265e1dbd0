"""`calibrate` and `allow-calibrations`: private maps from a model's score to the label."""

from __future__ import annotations

from typing import Annotated

import typer

from labels_party.answers.shape_help import SHAPE_OPTIONS, SHAPES
from labels_party.cli.answers import show_answer
from labels_party.cli.app import FilePath, Force, Json, app, services
from labels_party.cli.batch_or_labels import (
    AdditionalRelease,
    Audiences,
    BatchId,
    Budget,
    BudgetDelta,
    Examples,
    LabelColumn,
    LabelDomain,
    Labels,
    MissingLabel,
    PopulationName,
    batch_or_labels,
)
from shared.service.cli import emit, progress


@app.command()
def calibrate(
    scores: Annotated[FilePath, typer.Option(help="Parquet or CSV file with ids and scores, from who has the model.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids (and that of --labels).")],
    score_column: Annotated[str, typer.Option(help="Its column with scores.")],
    epsilon: Annotated[str, typer.Option(help="ε of this calibration; the whole batch is charged.")],
    out: Annotated[FilePath, typer.Option(help="Where the signed map goes (.json).")],
    score_2_column: Annotated[str | None, typer.Option(help="Its column with second scores, for a map of two.")] = None,
    batch: BatchId = None,
    labels: Labels = None,
    label_column: LabelColumn = None,
    domain: LabelDomain = None,
    population: PopulationName = None,
    budget: Budget = None,
    budget_delta: BudgetDelta = None,
    examples: Examples = None,
    missing_label: MissingLabel = None,
    audience: Audiences = None,
    out_of_domain: Annotated[str, typer.Option(help="clip or refuse labels outside the domain.")] = "clip",
    loss: Annotated[str, typer.Option(help="squared (means) or absolute (medians).")] = "squared",
    shape: Annotated[str, typer.Option(help=SHAPES)] = "auto",
    option: Annotated[list[str] | None, typer.Option(help=SHAPE_OPTIONS)] = None,
    numbers: Annotated[
        str, typer.Option(help="How scores are numbered: float32 (any scale), or LO:HI:STEPS.")
    ] = "float32",
    numbers_2: Annotated[str | None, typer.Option(help="The same for second scores (float32 if not given).")] = None,
    additional_release: AdditionalRelease = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer scores of examples with one signed, private map to the label that never falls, charged to the ledger."""
    from labels_party.answers.calibrations import CalibrationWish
    from labels_party.offline_answers import CalibrateJob
    from labels_party.offline_answers import calibrate as run_job
    from labels_party.options import parse_options_text

    wish = CalibrationWish.parse(
        epsilon=epsilon,
        loss=loss,
        shape=shape,
        options=parse_options_text(option or []),
        scores=numbers,
        scores_2=numbers_2,
        two=score_2_column is not None,
        additional_release=additional_release,
    )
    rules = (label_column, domain, population, budget, budget_delta, examples, missing_label, audience)
    of = batch_or_labels(batch, labels, id_column, *rules, out_of_domain)
    with progress("calibrate", as_json) as report:
        party = services(existing=labels is None)
        job = CalibrateJob(of, scores, id_column, score_column, wish, out, force, score_2_column)
        result = run_job(party, job, report)
    emit(result, as_json, lambda: show_answer(result))


@app.command("allow-calibrations")
def allow_calibrations(
    batch: Annotated[str, typer.Argument(help="Id of a sealed batch.")],
    epsilon: Annotated[str, typer.Option(help="ε that its audiences may charge in all by calibrations; 0 ends it.")],
    as_json: Json = False,
) -> None:
    """Let the audiences of a batch ask for calibrations themselves, up to so much ε."""
    from shared.message.calibration import CALIBRATION
    from shared.privacy import Epsilon

    allowed = Epsilon.parse(epsilon, name="the allowance")
    _, result = services(existing=True).allowances.set(batch, CALIBRATION, allowed, "command line")
    said = f"{batch}: audiences may charge ε {result['epsilon']} by calibrations, {result['epsilon_left']} is left"
    emit(result, as_json, lambda: typer.echo(said))
