"""`daily`: a day of the training job, as a `pipeline.toml` says."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from features_party.cli.app import app, services
from features_party.cli.door import labels_party
from label_dp.cli.output import emit, progress, table
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Json
from label_dp.cli.startup import allow_pandas


@app.command(rich_help_panel=AROUND)
def daily(
    pipeline: Annotated[
        Path, typer.Argument(metavar="PIPELINE", help="A pipeline.toml; its paths are relative to it.")
    ],
    again: Annotated[bool, typer.Option("--again", help="Train although no new message came.")] = False,
    as_json: Json = False,
) -> None:
    """Pull, train, compare with yesterday's model on privatized labels, and keep the better one.

    FOLDER/current is the model that is kept, FOLDER/runs has the record of each run. Exit code 0: a model is kept,
    today's or yesterday's; otherwise nothing was changed.
    """
    from features_party.daily.day import Day
    from features_party.daily.pipeline import read_pipeline

    asked, base = read_pipeline(pipeline), pipeline.parent
    if asked.mlflow is not None:
        allow_pandas()
    with progress("daily", as_json) as report, ExitStack() as stack:
        service = None
        if asked.pull is not None:
            file = asked.pull.api_key_file
            service = stack.enter_context(labels_party(asked.pull.url, None if file is None else base / file))
        data = Day(services(), asked, base, again).run(service, report)
    emit(data, as_json, lambda: _show(data))


def _show(data: dict[str, Any]) -> None:
    rows = [
        ["kept", f"{data['kept']}: {data['model']}"],
        ["why", data["why"]],
        ["messages", f"{len(data['messages'])}, {len(data['fresh'])} of them new"],
    ]
    if "today" in data:
        rows.append(["trained on", f"{data['trained_rows']:,} rows; {data['held_out_examples']:,} examples held out"])
        if data["warm_start"] is not None:
            rows.append(["warm start", f"only members and crossed effects of {data['warm_start']} were looked at"])
        if data["unmatched_warning"] is not None:
            rows.append(["warning", data["unmatched_warning"]])
        rows += [[f"ε per example of {one['name']}", one["epsilon_per_example"]] for one in data["epsilon"]]
    if "mlflow" in data:
        rows.append(["MLflow", data["mlflow"].get("problem") or f"run {data['mlflow']['run']}"])
    if data["rehearsal"]:
        rows.append(["note", "a rehearsal: labels are made up"])
    table("Daily run", ["", ""], rows)
