"""`erase` and `erasures`: labels that stop counting and are deleted from what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from labels_party.cli.app import app, services
from shared.service.cli import OFFICER, emit, table, whole
from shared.service.party_commands import Json

PopulationName = Annotated[str, typer.Option(help="Name or id of the population.")]


@app.command(rich_help_panel=OFFICER)
def erase(
    population: PopulationName,
    example: Annotated[list[str] | None, typer.Option("--id", help="Id of an example; repeatable.")] = None,
    ids: Annotated[
        Path | None, typer.Option(help="File of ids: one a line, or Parquet or CSV with --id-column.")
    ] = None,
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")] = "example_id",
    as_json: Json = False,
) -> None:
    """Erase the labels of examples: they take the missing-label value, and the labels are deleted here.

    What was published with them cannot be recalled; `erasures` and the release's statement say what that is.
    """
    from labels_party.labels.erasures import MOST_IDS
    from labels_party.work.decisions import COMMAND_LINE
    from shared.errors import InvalidInput

    wanted: list[str | int] = [*(example or []), *(_read(ids, id_column) if ids is not None else [])]
    if not wanted:
        raise InvalidInput("Name the examples: --id ID (repeatable), or --ids FILE.")
    party = services(existing=True)
    for start in range(0, len(wanted), MOST_IDS):
        party.erasures.request(population, wanted[start : start + MOST_IDS], COMMAND_LINE)
    waiting = party.erasures.finish()
    data = {"population": population, "examples": len(set(wanted)), "waiting": waiting}
    then = "; those of a batch that is being drawn follow its release" if waiting else ""
    subject = "1 example: its label" if data["examples"] == 1 else f"{data['examples']:,} examples: their labels"
    verb = "counts" if data["examples"] == 1 else "count"
    emit(data, as_json, lambda: typer.echo(f"{subject} no longer {verb}{then}."))


@app.command(rich_help_panel=OFFICER)
def erasures(
    population: PopulationName,
    example: Annotated[list[str] | None, typer.Option("--id", help="Only of these examples; repeatable.")] = None,
    limit: Annotated[
        int, typer.Option(parser=whole("--limit", 1), metavar="INTEGER", help="At most this many.")
    ] = 1000,
    as_json: Json = False,
) -> None:
    """What was erased, and which releases cannot be recalled."""
    party = services(existing=True)

    def look(connection: Any) -> list[dict[str, Any]]:
        found = party.populations.get(connection, population)
        listed: list[dict[str, Any]] = party.erasures.list(
            connection, found, ids=list(example or []), after="", limit=limit
        )
        return listed

    found = party.database.read("erasure.list", look)

    def human() -> None:
        rows = [
            [
                *(str(e[name] or "") for name in ("id", "requested", "state", "effect", "batch")),
                ", ".join(r["work"] for r in e["cannot_be_recalled"]),
            ]
            for e in found
        ]
        table("Erasures", ["id", "requested", "state", "erased", "batch", "cannot be recalled"], rows)

    emit(found, as_json, human)


def _read(path: Path, column: str) -> list[str]:
    from shared.columnar.tables import read_bytes, read_table
    from shared.errors import InvalidFile

    if path.suffix.lower() in (".parquet", ".csv"):
        values = read_table(path, text_columns=[column], columns=[column])[column].to_pylist()
        if any(value is None for value in values):
            raise InvalidFile(f"A row of '{path}' has no id.")
        return [str(value) for value in values]
    try:
        return [line for line in read_bytes(path).decode("utf-8").splitlines() if line]
    except UnicodeDecodeError:
        raise InvalidFile(f"'{path}' is not UTF-8 text with one id a line.") from None
