"""Every kind of answer is a command: one signed document of a batch, or of a file of labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.actors import COMMAND_LINE, person
from label_dp.cli.commands import Made, command, command_later
from label_dp.cli.output import echo, emit, progress, table
from label_dp.cli.panels import AROUND, Panel
from label_dp.cli.party_commands import Force, Json, table_option
from label_dp.errors import InvalidInput
from labels_party.cli.app import app, services
from labels_party.companions.cli.answers import show_answer

if TYPE_CHECKING:
    from label_dp.documents.kind import Kind
    from label_dp.schemas.base import Ask
    from label_dp.schemas.calibration import Allowance
    from label_dp.schemas.population import Batch, Population
    from labels_party.files.jobs import LabelsFile

FILE = "A file of labels, sealed as a batch"
BatchId = Annotated[str | None, typer.Option(help="Id of a sealed batch; or else --labels.")]
Labels = Annotated[
    str | None, typer.Option(metavar="PATH", help="Parquet or CSV of labels, or a lake table.", rich_help_panel=FILE)
]
Examples = Annotated[
    str | None, typer.Option(metavar="PATH", help="File that lists all example ids.", rich_help_panel=FILE)
]
Out = Annotated[Path, typer.Option(help="Where the signed answer goes (.json).")]
As = Annotated[str | None, typer.Option("--as", help="Who asks; needed in a four-eyes population.")]


def of_labels(
    *,
    asked: Ask,
    out: Out,
    batch: BatchId = None,
    labels: Labels = None,
    id_column: Annotated[str | None, typer.Option(help="Its column with example ids.", rich_help_panel=FILE)] = None,
    rules: Annotated[Population | None, Panel(FILE)],
    opened: Annotated[Batch | None, Panel(FILE)],
    examples: Examples = None,
    name: As = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Ask for an answer from labels alone."""
    of = _batch_or_labels(batch, labels, id_column, rules, opened, examples)
    if labels is None and id_column is not None:
        raise InvalidInput("A sealed batch has its ids already; give --id-column with --labels only.")
    _answer(of, asked, out, force, name, as_json)


def of_scores(
    *,
    scores: Annotated[Any, table_option(help="Parquet or CSV file with ids and scores, from who has the model.")],
    id_column: Annotated[str, typer.Option(help="Its column with example ids (and that of --labels).")],
    score_column: Annotated[str, typer.Option(help="Its column with scores.")],
    score_2_column: Annotated[str | None, typer.Option(help="Its column with second scores, for a map of two.")] = None,
    asked: Ask,
    out: Out,
    batch: BatchId = None,
    labels: Labels = None,
    rules: Annotated[Population | None, Panel(FILE)],
    opened: Annotated[Batch | None, Panel(FILE)],
    examples: Examples = None,
    name: As = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Ask for an answer from labels and scores."""
    from label_dp.schemas.calibration import Calibration

    columns = tuple(name for name in (id_column, score_column, score_2_column) if name is not None)
    of = _batch_or_labels(batch, labels, id_column, rules, opened, examples)
    assert isinstance(asked, Calibration)
    asked = asked.numbered(two=score_2_column is not None)
    _answer(of, asked, out, force, name, as_json, scores=scores, columns=columns)


def of_features(
    *,
    asked: Ask,
    out: Annotated[Path | None, typer.Option(help="Where the signed answer goes (.json).")] = None,
    features: Annotated[
        Any | None, table_option(help="Table of features (Parquet or CSV); default the one stored before.")
    ] = None,
    id_column: Annotated[
        str, typer.Option(help="Column with example ids of --features (and of --labels).")
    ] = "example_id",
    batch: BatchId = None,
    labels: Labels = None,
    rules: Annotated[Population | None, Panel(FILE)],
    opened: Annotated[Batch | None, Panel(FILE)],
    examples: Examples = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what it would cost and do; nothing is charged.")
    ] = False,
    name: As = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Ask for an answer from labels and features."""
    from labels_party.companions.files import planned

    of = _batch_or_labels(batch, labels, id_column, rules, opened, examples)
    if plan:
        if not isinstance(of, str) or features is not None or out is not None:
            raise InvalidInput("--plan looks at a sealed batch and the features stored with it: name it with --batch.")
        party = services(existing=True)
        preview = planned(party, of, party.work.asked_by(type(asked)), asked)
        emit(preview, as_json, lambda: _show_plan(preview))
        return
    if out is None:
        raise InvalidInput("Say where the signed answer goes with --out, or look first with --plan.")
    _answer(of, asked, out, force, name, as_json, features=None if features is None else (features, id_column))


MADE: dict[str, Callable[..., None]] = {"nothing": of_labels, "scores": of_scores, "features": of_features}


def declare(name: str, told: str) -> None:
    """Declare the command of a kind of answer; the kinds are loaded when it runs."""
    command_later(app, name, AROUND, told, partial(_made, name))


def _kind(command: str) -> Kind[Any, Any]:
    from label_dp.documents.registry import KINDS

    return next(kind for kind in KINDS.values() if kind.command == command and kind.asks is not None)


def _made(name: str) -> Made:
    kind = _kind(name)
    return MADE[kind.beside], kind.asks


# generated from the kinds by `tests/unit/labels_party/cli/test_helps.py`, which tests that it matches
HELPS = Path(__file__).with_name("helps.json")
for name, told in json.loads(HELPS.read_text(encoding="utf-8")).items():
    declare(name, told)


@command(app, "allow-calibrations", AROUND)
def allow_calibrations(
    *, batch: Annotated[str, typer.Argument(help="Id of a sealed batch.")], asked: Allowance, as_json: Json = False
) -> None:
    """Let the audiences of a batch ask for calibrations themselves, up to so much ε."""
    _allow(batch, "calibrate", asked, as_json)


@command(app, "allow-sums", AROUND)
def allow_sums(
    *, batch: Annotated[str, typer.Argument(help="Id of a sealed batch.")], asked: Allowance, as_json: Json = False
) -> None:
    """Let the audiences of a batch ask for sums by columns of their own, up to so much ε."""
    _allow(batch, "sums", asked, as_json)


def _allow(batch: str, command: str, asked: Allowance, as_json: bool) -> None:
    from label_dp.privacy import Epsilon

    kind = _kind(command).name
    allowed = Epsilon.parse(asked.epsilon, name="the allowance")
    _, result = services(existing=True).allowances.set(batch, kind, allowed, "command line")
    text = f"{batch}: audiences may charge ε {result['epsilon']} by {kind}s, {result['epsilon_left']} is left"
    emit(result, as_json, lambda: echo(text))


def _batch_or_labels(
    batch: str | None,
    labels: str | None,
    id_column: str | None,
    rules: Population | None,
    opened: Batch | None,
    examples: str | None,
) -> str | LabelsFile:
    """Return the id of a batch, or the file with the rules of its population. Raises InvalidInput and its kinds."""
    from labels_party.files.inputs import population_of
    from labels_party.files.jobs import LabelsFile

    if (batch is None) == (labels is None):
        raise InvalidInput("Name a sealed batch with --batch, or a file of labels with --labels.")
    if batch is not None:
        if rules is not None or opened is not None or examples is not None:
            raise InvalidInput("A sealed batch has its population's rules already; give them with --labels only.")
        return batch
    if labels is None or id_column is None or rules is None:
        raise InvalidInput("--labels needs --id-column, --label-column, --domain, --population and --budget.")
    return LabelsFile(labels, id_column, population_of(rules), examples, opened.id_prefix if opened else None)


def _answer(
    of: str | LabelsFile, asked: Ask, out: Path, force: bool, name: str | None, as_json: bool, **beside: Any
) -> None:
    """`beside`: members of the errand."""
    from labels_party.companions.files import AnswerErrand, CalibrationErrand
    from labels_party.files.jobs import run

    actor = COMMAND_LINE if name is None else person(name)
    with progress("answer", as_json) as report:
        party = services(existing=isinstance(of, str))
        errand_type = CalibrationErrand if "scores" in beside else AnswerErrand
        errand = errand_type(out, force, actor, party.work.asked_by(type(asked)), asked, **beside)
        result = run(party, of, errand, report)
    emit(result, as_json, lambda: show_answer(result))


def _show_plan(preview: dict[str, Any]) -> None:
    cost = preview["epsilon"]
    members = preview["parameters"] | preview["facts"]
    rows = [[name, str(value)] for name, value in members.items() if name != "features"]
    table(
        f"A {preview['kind']} of batch {preview['batch']}",
        ["", ""],
        [["ε", f"{cost['total']}; δ = {cost['delta']}"], *rows],
    )
