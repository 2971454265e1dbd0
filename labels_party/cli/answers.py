"""`answer`, and what people see of a signed answer of any kind."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from labels_party.cli.app import FilePath, Force, Json, app, services
from shared.service.cli import emit, say, table

RANK_ERROR = "rank_error_19_of_20"


@app.command()
def answer(
    name: Annotated[str, typer.Argument(metavar="ANSWER", help="Id of a charged or published answer.")],
    out: Annotated[FilePath, typer.Option(help="Where its signed document goes (.json).")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the signed document of an answer once more, byte for byte; nothing is charged."""
    from labels_party.offline_answers import finish, write_out

    party = services(existing=True)
    finish(party, name)
    result = write_out(party, name, out, force=force)
    emit(result, as_json, lambda: show_answer(result))


def show_answer(data: dict[str, Any]) -> None:
    """What people see of a signed answer."""
    eps = data["epsilon"]
    rows = [
        ["document", str(data["out"])],
        ["answer", f"{data['answer']}, a {data['kind']} of batch {data['batch']}"],
        ["population", f"{data['population']} ({data['label']}), {data['examples']:,} examples, all charged"],
        ["audiences", ", ".join(data["audiences"])],
        ["ε", f"{eps['total']}; δ = {eps['delta']}"],
        ["budget", f"{data['epsilon_spent']} of {data['epsilon_lifetime']} spent per example"],
    ]
    if data["delta_lifetime"] != "0":
        rows += [["δ budget", f"{data['delta_spent']} of {data['delta_lifetime']} spent per example"]]
    rows += [[name, _said(value)] for name, value in data["parameters"].items() if value and name != "features"]
    if "median" in data:
        rows += [["median", data["median"] or "none found: too few labels agree at this ε and δ"]]
    if RANK_ERROR in data["facts"]:
        rows += [["rank error", f"{data['facts'][RANK_ERROR]:,} labels or fewer, 19 times in 20"]]
    if "pieces" in data:
        rows += [["values of the map", f"{data['pieces']:,}"]]
    if "value" in data:
        rows += [["value", str(data["value"])]]
    table("Signed answer", ["", ""], [*rows, ["signed by", data["key_id"]], ["public key", str(data["labels_key"])]])
    if "sides" in data:
        sides = [[side["name"], str(side["from"]), str(side["to"])] for side in data["sides"]]
        table("Inside", ["feature", "from", "to"], sides)
        if not data["found"]:
            say("A side was not found, so nothing is inside: too few examples share one at this ε and δ.")
        elif any(side["first"] > side["last"] for side in data["sides"]):
            say("A side ends before it begins, so nothing is inside: too few examples are positive, or many are equal.")
    if "weights" in data:
        weights = [["=".join(w[k] for k in ("name", "value") if k in w), w["weight"]] for w in data["weights"]]
        table("Weights", ["feature", "weight"], [["constant", data["constant"]], *weights])


def _said(value: Any) -> str:
    """A parameter; options, and a query's members, as NAME=VALUE."""
    return ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
