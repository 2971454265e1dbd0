"""Form that starts a training: from what and how, what it will do, and the same as a command and in Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from fastapi import Response

from features_party.bootstrap import Services
from features_party.models.trainer import check_learning
from features_party.pages.context import Trainer, newest, services
from features_party.receive.acceptances import MESSAGE
from label_dp.errors import InvalidInput, LabelDPError
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


@router.get("/trainings/new")
def choose(visit: Trainer) -> Response:
    """Show the form as its address fills it in; an empty one with the newest message and table."""
    return _page(visit, visit.request.query_params)


@router.post("/trainings", dependencies=[FORM])
def start(visit: Trainer) -> Response:
    """Queue the training, as `POST /v1/trainings` does. A refusal leaves the form as it was filled in."""
    ctx = services(visit)
    try:
        training = _training(visit.form, _marked(visit.form), _table(ctx, visit.form))
        row = ctx.trainings.request(training)
    except LabelDPError as error:
        return _page(visit, visit.form, error)
    visit.request.app.state.worker.wake()
    return visit.go(f"/trainings/{row['id']}", "queued")


def _page(visit: Visit, fields: Mapping[str, str], refusal: LabelDPError | None = None) -> Response:
    ctx = services(visit)
    messages, tables = ctx.acceptances.page(MESSAGE, newest(None)), ctx.feature_tables.list(newest(None))
    marked = _marked(fields) if fields else [row["digest"] for row in messages.rows[:1]]
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
