"""Every kind of answer is a command: one signed document of a batch, or of a file of labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labels_party.cli.answers import show_answer
from labels_party.cli.app import app, services
from shared.errors import InvalidInput
from shared.schemas.answers import ANSWERS
from shared.schemas.base import Ask
from shared.schemas.calibration import Allowance
from shared.schemas.population import Population
from shared.service.cli import AROUND, emit, progress, table
from shared.service.commands import Panel, command
from shared.service.party_commands import Force, Json

if TYPE_CHECKING:
    from labels_party.files.jobs import Errand, LabelsFile

FILE = "A file of labels, sealed as a batch"
BatchId = Annotated[str | None, typer.Option(help="Id of a sealed batch; or else --labels.")]
Labels = Annotated[Path | None, typer.Option(help="Parquet or CSV file of labels.", rich_help_panel=FILE)]
Examples = Annotated[Path | None, typer.Option(help="File that lists all example ids.", rich_help_panel=FILE)]
Rules = Annotated[Population | None, Panel(FILE)]
Out = Annotated[Path, typer.Option(help="Where the signed answer goes (.json).")]
As = Annotated[str | None, typer.Option("--as", help="Who asks; needed in a four-eyes population.")]
KINDS = {answer.schema: answer.kind for answer in ANSWERS}


def of_labels(
    *,
    asked: Ask,
    out: Out,
    batch: BatchId = None,
    labels: Labels = None,
    id_column: Annotated[str | None, typer.Option(help="Its column with example ids.", rich_help_panel=FILE)] = None,
    rules: Rules,
    examples: Examples = None,
    name: As = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    from labels_party.files.answers import AnswerErrand, wish_of

    of = _batch_or_labels(batch, labels, id_column, rules, examples)
    if labels is None and id_column is not None:
        raise InvalidInput("A sealed batch has its ids already; give --id-column with --labels only.")
    _answer(of, AnswerErrand(out, force, _actor(name), KINDS[type(asked)], wish_of(asked)), as_json)


def of_scores(
    *,
    scores: Annotated[Path, typer.Option(help="Parquet or CSV file with ids and scores, from who has the model.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids (and that of --labels).")],
    score_column: Annotated[str, typer.Option(help="Its column with scores.")],
    score_2_column: Annotated[str | None, typer.Option(help="Its column with second scores, for a map of two.")] = None,
    asked: Ask,
    out: Out,
    batch: BatchId = None,
    labels: Labels = None,
    rules: Rules,
    examples: Examples = None,
    name: As = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    from labels_party.files.answers import CalibrationErrand, wish_of

    columns = tuple(name for name in (id_column, score_column, score_2_column) if name is not None)
    of = _batch_or_labels(batch, labels, id_column, rules, examples)
    wish = wish_of(asked, scores=len(columns) - 1)
    _answer(of, CalibrationErrand(out, force, _actor(name), KINDS[type(asked)], wish, None, scores, columns), as_json)


def of_features(
    *,
    asked: Ask,
    out: Annotated[Path | None, typer.Option(help="Where the signed answer goes (.json).")] = None,
    features: Annotated[
        Path | None, typer.Option(help="Table of features (Parquet or CSV); default the one stored before.")
    ] = None,
    id_column: Annotated[
        str, typer.Option(help="Column with example ids of --features (and of --labels).")
    ] = "example_id",
    batch: BatchId = None,
    labels: Labels = None,
    rules: Rules,
    examples: Examples = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what it would cost and do; nothing is charged.")
    ] = False,
    name: As = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    from labels_party.files.answers import AnswerErrand, planned, wish_of

    of, wish = _batch_or_labels(batch, labels, id_column, rules, examples), wish_of(asked)
    if plan:
        if not isinstance(of, str) or features is not None or out is not None:
            raise InvalidInput("--plan looks at a sealed batch and the features stored with it: name it with --batch.")
        told = planned(services(existing=True), of, KINDS[type(asked)], wish)
        emit(told, as_json, lambda: _show_plan(told))
        return
    if out is None:
        raise InvalidInput("Say where the signed answer goes with --out, or look first with --plan.")
    table_of = None if features is None else (features, id_column)
    _answer(of, AnswerErrand(out, force, _actor(name), KINDS[type(asked)], wish, table_of), as_json)


MADE = {"nothing": of_labels, "scores": of_scores, "features": of_features}
for answer in ANSWERS:
    command(app, answer.command, AROUND, asked=answer.schema)(MADE[answer.beside])


@command(app, "allow-calibrations", AROUND)
def allow_calibrations(
    *,
    batch: Annotated[str, typer.Argument(help="Id of a sealed batch.")],
    asked: Allowance,
    as_json: Json = False,
) -> None:
    """Let the audiences of a batch ask for calibrations themselves, up to so much ε."""
    from shared.documents.kinds.calibration import CALIBRATION
    from shared.privacy import Epsilon

    allowed = Epsilon.parse(asked.epsilon, name="the allowance")
    _, result = services(existing=True).allowances.set(batch, CALIBRATION, allowed, "command line")
    said = f"{batch}: audiences may charge ε {result['epsilon']} by calibrations, {result['epsilon_left']} is left"
    emit(result, as_json, lambda: typer.echo(said))


def _batch_or_labels(
    batch: str | None,
    labels: Path | None,
    id_column: str | None,
    rules: Population | None,
    examples: Path | None,
) -> str | LabelsFile:
    """The id of a batch, or the file with the rules of its population. Raises InvalidInput and its kinds."""
    from labels_party.files.inputs import population_of
    from labels_party.files.jobs import LabelsFile

    if (batch is None) == (labels is None):
        raise InvalidInput("Name a sealed batch with --batch, or a file of labels with --labels.")
    if batch is not None:
        if rules is not None or examples is not None:
            raise InvalidInput("A sealed batch has its population's rules already; give them with --labels only.")
        return batch
    if labels is None or id_column is None or rules is None:
        raise InvalidInput("--labels needs --id-column, --label-column, --domain, --population and --budget.")
    return LabelsFile(labels, id_column, population_of(rules), examples)


def _actor(name: str | None) -> str:
    from labels_party.work.decisions import COMMAND_LINE, person

    return COMMAND_LINE if name is None else person(name)


def _answer(of: str | LabelsFile, errand: Errand, as_json: bool) -> None:
    from labels_party.files.jobs import run

    with progress("answer", as_json) as report:
        result = run(services(existing=isinstance(of, str)), of, errand, report)
    emit(result, as_json, lambda: show_answer(result))


def _show_plan(told: dict[str, Any]) -> None:
    cost = told["epsilon"]
    said = told["parameters"] | told["facts"]
    rows = [[name, str(value)] for name, value in said.items() if name != "features"]
    table(
        f"A {told['kind']} of batch {told['batch']}", ["", ""], [["ε", f"{cost['total']}; δ = {cost['delta']}"], *rows]
    )
