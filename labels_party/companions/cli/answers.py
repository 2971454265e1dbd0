"""`answers`, `answer`, and what people see of a signed answer of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.cli.answers import (
    Csv,
    Parquet,
    answer_rows,
    budget_rows,
    headline,
    show_result,
    show_written,
    write_groupings,
)
from label_dp.cli.commands import command
from label_dp.cli.output import emit, say, table
from label_dp.cli.panels import AROUND, Panel
from label_dp.cli.party_commands import Force, Json
from labels_party.cli.app import app, services
from labels_party.cli.lists import GIVEN, Most, acknowledged, everything_given, fetched, given_row
from labels_party.cli.names import told_apart

if TYPE_CHECKING:
    from label_dp.schemas.filters import GivenFilter


@command(app, panel=AROUND)
def answers(
    asked: Annotated[GivenFilter, Panel(without=("batch", "state"))], limit: Most = 1000, as_json: Json = False
) -> None:
    """Every answer that was charged, oldest first: what it is, of which batch, for whom, at which ε, who asked."""
    from labels_party.work.kind import ANSWERS

    page = everything_given(ANSWERS, limit, asked)

    def human() -> None:
        if not page:
            say("No answer fits: calibrate, median, rectangle, linear-model and predict give some.")
            return
        rows = [[a["id"], a["kind"], *given_row(a), a["delta"], fetched(a), acknowledged(a)] for a in page]
        heads = ["answer", "kind", *GIVEN, "δ", "last fetched", "acknowledged"]
        table("Answers; `labels-party answer ANSWER --out FILE.json` writes one", heads, rows)

    emit(page, as_json, human)


@app.command(rich_help_panel=AROUND)
def answer(
    name: Annotated[str, typer.Argument(metavar="ANSWER", help="Id of a charged or published answer.")],
    out: Annotated[Path, typer.Option(help="Where its signed document goes (.json).")],
    csv: Csv = None,
    parquet: Parquet = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the signed document of an answer once more, byte for byte; nothing is charged."""
    from labels_party.companions.files import write_out
    from labels_party.files.jobs import finish
    from labels_party.work.kind import ANSWERS

    party = services(existing=True)
    with told_apart(party, name):
        finish(party, name, ANSWERS)
    result = write_out(party, name, out, force=force)
    files = write_groupings([result], csv, parquet, force=force)

    def human() -> None:
        show_answer(result)
        show_written(files)

    emit(result | ({"files": files} if files else {}), as_json, human)


def show_answer(data: dict[str, Any]) -> None:
    """What people see of a signed answer, or of one that waits for an approval."""
    if "next" in data:
        say(f"{data['answer']} is {data['state']}: {data['next']}")
        return
    eps = data["epsilon"]
    rows = [
        ["document", str(data["out"])],
        ["answer", f"{data['answer']}, a {data['kind']} of batch {data['batch']}"],
        ["population", f"{data['population']} ({data['label']}), {data['examples']:,} examples, all charged"],
        ["audiences", ", ".join(data["audiences"])],
        ["ε", f"{eps['total']}; δ = {eps['delta']}"],
        *budget_rows(data),
    ]
    if data["delta_lifetime"] != "0":
        rows += [["δ budget", f"{data['delta_spent']} of {data['delta_lifetime']} spent per example"]]
    rows += answer_rows(data["parameters"], data, data["facts"])
    rows += [["signed by", data["key_id"]], ["public key", str(data["labels_key"])]]
    table(f"Signed answer{headline(data)}", ["", ""], rows)
    show_result(data["parameters"], data)
