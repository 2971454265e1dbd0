"""Trainings: the form that starts one, with the same as a command and in Python; their progress and cancellation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header, Response
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from features_party.bootstrap import Services
from features_party.models.event_stream import Streams, event_stream
from features_party.models.jobs import ENDED
from features_party.models.trainer import check_learning
from features_party.pages.context import Cursor, Reader, Trainer, newest, services
from features_party.receive.acceptances import MESSAGE
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.pages.pictures import Curve, curves
from label_dp.pages.site import FORM, Visit, page_router
from label_dp.problems import status_of
from label_dp.schemas.replies import TableOut
from label_dp.schemas.training import Learning, Training
from label_dp.schemas.validation import as_model

router = page_router()
MARK = "message-"  # and the digest of its manifest: two labels parties may choose one release id
EMPTY = {"model": "ensemble", "loss": "", "correction": "auto", "name": "", "categorical": "", "exclude": ""}
LEARNERS = {
    "ensemble": "boosted trees, additive models and a Gaussian process, weighted by what each gets right on privatized "
    "labels that it did not see; trees alone where labels are too few or too noisy to compare. A minute or two",
    "trees": "boosted trees alone, of a size that rows and noise allow. Seconds",
    "linear": "ridge regression; logistic regression for labels 0 and 1. Seconds",
    "mlp": "a neural network; this service then needs PyTorch",
}
LOSSES = {"squared": "means", "absolute": "medians", "poisson": "counts", "log": "probabilities"}
CORRECTIONS = {
    "auto": "what a model learns best from, by noise and rows",
    "none": "outputs as they were drawn",
    "debias": "no bias, whatever the noise",
    "posterior": "the expected label of an output",
}


@router.get("/trainings")
def trainings(visit: Reader, cursor: Cursor = None) -> Response:
    """List the trainings."""
    return visit.page("trainings", found=services(visit).trainings.list(newest(cursor)))


@router.get("/trainings/new")
def choose(visit: Trainer) -> Response:
    """Show the form as its address fills it in; an empty one with the newest message and table."""
    return _form(visit, visit.request.query_params)


@router.post("/trainings", dependencies=[FORM])
def start(visit: Trainer) -> Response:
    """Queue the training, as `POST /v1/trainings` does. A refusal leaves the form as it was filled in."""
    ctx = services(visit)
    try:
        training = _training(visit.form, _marked(visit.form), _table(ctx, visit.form))
        row = ctx.trainings.request(training)
    except LabelDPError as error:
        return _form(visit, visit.form, error)
    visit.request.app.state.worker.wake()
    return visit.go(f"/trainings/{row['id']}", "queued")


@router.get("/trainings/{training}")
def training(training: str, visit: Reader) -> Response:
    """Show a training."""
    trainings = services(visit).trainings
    row = trainings.get(training)
    return visit.page("training", row=row, live=row["state"] not in ENDED, curve=_curve(trainings.losses(training)))


def _curve(losses: list[dict[str, Any]]) -> Markup:
    """Draw the losses so far, by trees or epochs; empty below two points."""
    lines = []
    for of in losses:
        places, values = zip(*of["points"], strict=True)
        lines += [Curve(of["name"], places, values)] if len(places) > 1 else []
    if not lines:
        return Markup("")
    ends = "; ".join(f"{curve.name} from {curve.y[0]:.4g} to {curve.y[-1]:.4g}" for curve in lines)
    text = f"Loss on privatized labels: {ends}"
    return curves("Loss curves", text, "trees or epochs", "loss on corrected labels", lines, from_zero=False)


@router.get("/trainings/{training}/events")
async def watch(
    training: str, visit: Reader, last: Annotated[str | None, Header(alias="Last-Event-ID")] = None
) -> Response:
    """Stream as over REST, for the page of the training."""
    ctx = services(visit)
    row = await run_in_threadpool(ctx.trainings.get, training)
    streams: Streams = visit.request.app.state.streams
    return event_stream(streams, lambda: ctx.trainings.get(training), row, last)


@router.post("/trainings/{training}/cancel", dependencies=[FORM])
def cancel(training: str, visit: Trainer) -> Response:
    """Cancel a training."""
    services(visit).trainings.cancel(training)
    return visit.go(f"/trainings/{training}", "cancelled")


def _form(visit: Visit, fields: Mapping[str, str], refusal: LabelDPError | None = None) -> Response:
    ctx = services(visit)
    messages, tables = ctx.acceptances.page(MESSAGE, newest(None)), ctx.feature_tables.list(newest(None))
    newest_one = [] if "model" in fields else [row["digest"] for row in messages.rows[:1]]  # of a form that is new
    marked = _marked(fields) or newest_one
    table = (fields.get("feature_table") or tables.rows[0]["id"]) if tables.rows else ""
    plan: dict[str, object] = {}
    missing = ""
    try:
        plan = _plan(ctx, _training(fields, marked, _table(ctx, {"feature_table": table})))
    except LabelDPError as error:
        missing = error.detail
    return visit.page(
        "start",
        status=200 if refusal is None else status_of(refusal),
        messages=messages,
        tables=tables,
        marked=marked,
        mark=MARK,
        fields=EMPTY | dict(fields) | {"feature_table": table},
        learners=LEARNERS,
        losses=[(name, f"{name}: for {aim}") for name, aim in LOSSES.items()],
        corrections=[(name, f"{name}: {aim}") for name, aim in CORRECTIONS.items()],
        refusal=refusal,
        missing=missing,
        plan=plan,
    )


def _marked(fields: Mapping[str, str]) -> list[str]:
    return [name.removeprefix(MARK) for name in fields if name.startswith(MARK)]


def _table(ctx: Services, fields: Mapping[str, str]) -> TableOut:
    """Raises InvalidInput, NotFound."""
    if not fields.get("feature_table"):
        raise InvalidInput("Choose a feature table.")
    return ctx.feature_tables.get(fields["feature_table"])


def _training(fields: Mapping[str, str], messages: list[str], table: TableOut) -> Training:
    """Parse the form. Raises InvalidInput, InvalidRequest."""
    if not messages:
        raise InvalidInput("Mark a message: without labels there is nothing to learn.")
    values = {name: fields[name].strip() for name in ("model", "loss", "correction", "name") if name in fields}
    columns = {name: [part.strip() for part in fields.get(name, "").split(",")] for name in ("categorical", "exclude")}
    names = [column["name"] for column in table["columns"]]
    for part in (part for parts in columns.values() for part in parts if part):
        if part not in names:
            raise InvalidInput(
                f"The table has no column '{part}'. It has {', '.join(names[:20])}{', …' * (len(names) > 20)}."
            )
    if set(names) <= set(columns["exclude"]):
        raise InvalidInput("No column of the table is left to learn from.")
    body: dict[str, object] = {name: value for name, value in values.items() if value}
    body |= {name: [part for part in parts if part] for name, parts in columns.items()}
    training = as_model(body | {"messages": messages, "feature_table": table["id"]}, Training)
    check_learning(training)
    return training


def _plan(ctx: Services, training: Training) -> dict[str, object]:
    """Describe a training before it begins. Raises NotFound, Conflict."""
    table = ctx.feature_tables.get(training.feature_table)
    paths = [f"messages/{ctx.acceptances.find(MESSAGE, name)[1]}" for name in training.messages]
    features = f"feature-tables/{table['id']}" if table["uploaded"] else table["name"]
    options = training.model_dump(include=set(Learning.model_fields), exclude_defaults=True)
    return {
        "table": table,
        "count": len(paths),
        "model": training.model,
        "columns": [column["name"] for column in table["columns"] if column["name"] not in training.exclude],
        "command": _command(paths, features, table["id_column"], options),
        "python": _python(paths, features, table, options),
    }


def _command(paths: list[str], features: str, id_column: str, options: Mapping[str, object]) -> list[str]:
    """Lines of `features-party train`."""
    pairs = [("message", path) for path in paths]
    pairs += [("features", features), ("id-column", id_column), ("out", "model")]
    for name, value in options.items():
        pairs += [(name.replace("_", "-"), str(each)) for each in (value if isinstance(value, list) else [value])]
    return ["features-party train", *(f"  --{name} {shlex.quote(value)}" for name, value in pairs)]


def _python(paths: list[str], features: str, table: TableOut, options: Mapping[str, object]) -> list[str]:
    """Lines of Python that train the same model; a table's name says whether it is a CSV."""
    estimator = "LabelDPClassifier" if options.get("loss") == "log" else "LabelDPRegressor"
    read = "read_csv" if table["name"].lower().endswith((".csv", ".csv.gz")) else "read_parquet"
    members = {"id_column": table["id_column"], "home": "."} | dict(options)
    arguments = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in members.items())
    return [
        "import pandas as pd",
        f"from features_party import {estimator}",
        "",
        f"features = pd.{read}({json.dumps(features)})",
        f"messages = {json.dumps(paths)}",
        f"model = {estimator}(messages, {arguments})",
        "model.fit(features)",
        "print(model.predict(features.head()))",
    ]
