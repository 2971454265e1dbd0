"""`predictor` and `predict`: models that stay here, and single answers of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.actors import COMMAND_LINE
from label_dp.cli.commands import command
from label_dp.cli.numbers import whole
from label_dp.cli.output import emit, say, table
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Force, Json, table_option
from label_dp.errors import BudgetExceeded, Conflict, InvalidInput, LabelDPError
from label_dp.store.output_files import paid_for, replacing, writable
from labels_party.cli.app import app, services
from labels_party.companions.services import companions_of

if TYPE_CHECKING:
    from label_dp.columnar.parts import TablePath
    from label_dp.schemas.predictor import Predictor
    from labels_party.companions.kinds.prediction.queries import Answered

predictor = typer.Typer(help="Models of raw labels that stay here and answer single queries.", no_args_is_help=True)
app.add_typer(predictor, name="predictor", rich_help_panel=AROUND)
PredictorId = Annotated[str, typer.Argument(metavar="PREDICTOR", help="Its id, as `predictor list` shows it.")]


@command(predictor)
def create(
    *,
    asked: Predictor,
    features: Annotated[
        Any | None, table_option(help="Table of features (Parquet or CSV); default the one stored before.")
    ] = None,
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")] = "example_id",
    as_json: Json = False,
) -> None:
    """Train a predictor on a sealed batch and the labels party's own features. Nothing is charged; queries are."""
    party = services(existing=True)
    if features is not None:
        store = companions_of(party).features
        store.put(asked.batch, store.read_file(features, id_column), id_column)
    _, described = companions_of(party).predictors.create(asked.batch, asked, COMMAND_LINE)
    companions_of(party).predictors.train(described["id"])
    description = _told(party, described["id"])
    if description["state"] == "failed":
        raise Conflict(f"Predictor '{described['id']}' failed. {description['problem'].get('detail', '')}".strip())
    emit(description, as_json, lambda: _show(description))


@predictor.command(name="list")
def list_(as_json: Json = False) -> None:
    """Every predictor, what a query costs and how many new ones are left."""
    party = services(existing=True)
    listing = party.database.read("predictor.list", lambda c: companions_of(party).predictors.list(c, None))

    def human() -> None:
        rows = [
            [str(p[name]) for name in ("id", "batch", "state", "method", "epsilon_per_query", "epsilon_cap")]
            + [str(p[f"queries_{what}"]) for what in ("answered", "left")]
            for p in listing
        ]
        table("Predictors", ["id", "batch", "state", "method", "ε a query", "ε cap", "answered", "left"], rows)

    emit(listing, as_json, human)


@predictor.command()
def show(name: PredictorId, as_json: Json = False) -> None:
    """How a predictor answers, and what is left of its cap."""
    description = _told(services(existing=True), name)
    emit(description, as_json, lambda: _show(description))


@predictor.command()
def retire(name: PredictorId, as_json: Json = False) -> None:
    """Delete what a predictor learned; the answers that it gave stay."""
    description = companions_of(services(existing=True)).predictors.retire(name, COMMAND_LINE)
    emit(description, as_json, lambda: say(f"Predictor {name} is retired; what it learned is deleted."))


@app.command(rich_help_panel=AROUND)
def predict(
    name: PredictorId,
    query: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of one query; repeatable.")] = None,
    queries: Annotated[Any | None, table_option(help="Or a table of queries (Parquet or CSV).")] = None,
    limit: Annotated[
        int | None,
        typer.Option(parser=whole("--limit", 1), metavar="INTEGER", help="Of --queries, the first so many rows only."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where signed answers go, one JSON document a line.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Answer queries, each charged to the whole batch; one that was answered before is answered the same, for nothing.

    More new queries than the predictor has left are refused before the first is charged. Where others ask meanwhile,
    the first refusal ends it; what was answered until then is kept and written.
    """
    if (queries is None) == (not query):
        raise InvalidInput("Give one query with --query NAME=VALUE, repeated, or a table of them with --queries.")
    if limit is not None and queries is None:
        raise InvalidInput("--limit goes with --queries: it answers the first so many rows of the table.")
    if out is not None:
        writable(out, force)
    party = services(existing=True)
    plan = party.database.read("predictor.get", lambda c: companions_of(party).predictors.get(c, name)).plan
    wanted = [dict(_pair(text) for text in query or ())] if queries is None else _rows(queries, plan.features.names)
    wanted = wanted[:limit]
    _refuse_too_many(party, name, plan, wanted)  # refuses an invalid row, too, before the first one is charged
    answered: list[Answered] = []
    refused: LabelDPError | None = None
    for query_members in wanted:
        try:
            answered.append(companions_of(party).queries.predict(name, query_members, COMMAND_LINE))
        except LabelDPError as error:
            refused = error
            break
    if out is not None:
        with paid_for("the same command writes it"), replacing(out, force) as path:
            path.write_bytes(b"".join(a.envelope + b"\n" for a in answered))
    told = [{"answer": a.answer, "value": _value(a), "queries_left": a.left} for a in answered]
    rows = [[a.answer, _value(a), f"{a.left} left"] for a in answered]
    if answered or refused is None:
        emit(told, as_json, lambda: table("", ["", "", ""], rows))
    if refused is not None:
        if answered:
            refused.detail += f" Answered until then: the first {len(answered):,} of {len(wanted):,}; they are kept."
        raise refused


def _refuse_too_many(party: Any, name: str, plan: Any, queries: list[dict[str, Any]]) -> None:
    """Raise the errors of `Queries.outlook`, and BudgetExceeded if not all of `wanted` can be answered."""
    from label_dp.audit.show import counted
    from label_dp.privacy import Epsilon

    outlook = companions_of(party).queries.outlook(name, queries)
    if outlook.new > outlook.left:
        raise BudgetExceeded(
            f"There are {outlook.new:,} new queries in the table, and predictor '{name}' has {outlook.left:,} left at "
            f"ε = {plan.epsilon} each. Nothing was charged. --limit {outlook.first} answers the first "
            f"{counted(outlook.first, 'row')}; a row that was answered before, or comes again, is free.",
            asked=str(Epsilon(outlook.new * plan.epsilon.nano)),
            spent=str(Epsilon(_told(party, name)["queries_answered"] * plan.epsilon.nano)),
            lifetime=str(plan.cap),
        )


def _value(answered: Answered) -> str:
    import base64
    import json

    payload = json.loads(base64.b64decode(json.loads(answered.envelope)["payload"]))
    return str(payload["result"]["value"])


def _told(party: Any, name: str) -> dict[str, Any]:
    def look(connection: Any) -> dict[str, Any]:
        predictor, population = companions_of(party).predictors.for_audience(connection, name, None)
        description: dict[str, Any] = companions_of(party).predictors.describe(connection, predictor, population)
        return description

    predictor: dict[str, Any] = party.database.read("predictor.get", look)
    return predictor


def _show(description: dict[str, Any]) -> None:
    trained_on = f"{description['method']}, {description['examples']:,} examples of {description['batch']}"
    say(f"Predictor {description['id']} ({trained_on}) is {description['state']}.")
    if description["problem"]:
        say(str(description["problem"].get("detail", "")))
    remaining = description["queries_left"]
    new = f"{remaining:,} new {'query is' if remaining == 1 else 'queries are'}"
    say(f"A query costs ε {description['epsilon_per_query']}; {new} left of ε {description['epsilon_cap']}.")
    say(f"Protected: {description['adjacency']}.")
    settings = ("threshold", "learner", "parts", "regularisation", "centre", "bound")
    rows = [["asked with", "  ".join(_declared(feature) for feature in description["features"])]]
    rows += [[name, str(description[name])] for name in settings if description[name] is not None]
    table("", ["", ""], [*rows, ["audiences", ", ".join(description["audiences"])]])


def _declared(feature: dict[str, Any]) -> str:
    """Format NAME=LOW:HIGH or NAME=a,b,c, as it was given."""
    ends = "range" in feature
    return f"{feature['name']}={(':' if ends else ',').join(str(v) for v in feature['range' if ends else 'values'])}"


def _pair(text: str) -> tuple[str, str]:
    from label_dp.schemas.features import pair

    try:
        return pair(text)
    except ValueError as form:
        raise InvalidInput(f"'{text[:60]}' is not of the form {form}.") from None


def _rows(path: TablePath, names: list[str]) -> list[dict[str, Any]]:
    """Read the columns that are features of the predictor, all required. Raises InvalidFile, InvalidTable."""
    from label_dp.columnar.parts import read_rows

    rows: list[dict[str, Any]] = read_rows(path, columns=names).to_pylist()
    return rows
