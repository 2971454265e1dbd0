"""`erase` and `erasures`: labels of examples or persons that stop counting, and are deleted here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.actors import COMMAND_LINE
from label_dp.cli.numbers import whole
from label_dp.cli.output import confirm, echo, emit, say, table
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Json, Yes, table_option
from label_dp.errors import InvalidFile, InvalidInput
from labels_party.cli.app import app, services

if TYPE_CHECKING:
    from label_dp.columnar.parts import TablePath
    from label_dp.schemas.replies import ErasureOut

PopulationName = Annotated[str, typer.Option(help="Name or id of the population.")]
OneOrAll = Annotated[str | None, typer.Option("--population", help="Name or id of the population; or else --people.")]
Body = Annotated[str | None, typer.Option("--people", help="In every population of this body of people.")]
Units = Annotated[
    list[str] | None,
    typer.Option("--unit", help="A person, as the unit column spells it: all its examples, everywhere; repeatable."),
]
MOST_SHOWN = 20  # ids in a line for people


@app.command(rich_help_panel=OFFICER)
def erase(
    population: OneOrAll = None,
    people: Body = None,
    example: Annotated[list[str] | None, typer.Option("--id", help="Id of an example; repeatable.")] = None,
    ids: Annotated[
        Any | None, table_option(help="File of ids: one a line, or Parquet or CSV with --id-column; or a lake table.")
    ] = None,
    id_column: Annotated[str, typer.Option(help="Its column with example ids.")] = "example_id",
    unit: Units = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase the labels of examples, or of a person: they take the missing-label value, and are deleted here.

    A person stays erased in batches that are sealed later. What was published cannot be recalled; it is listed.
    """
    from labels_party.labels.erasures import MOST_IDS

    wanted: list[Any] = [*(example or []), *(_read(ids, id_column) if ids is not None else [])]
    if bool(wanted) == bool(unit):
        raise InvalidInput("Name the examples (--id ID, repeatable, or --ids FILE), or the persons (--unit UNIT).")
    if (population is None) == (people is None):
        raise InvalidInput("Name a --population, or with --people a body whose populations are all meant.")
    party = services(existing=True)
    names: list[str] = party.unit_erasures.populations(party.ledger.people, people) if people else [str(population)]
    asks = party.unit_erasures if unit else party.erasures
    wishes: list[str] = unit or wanted
    whose = f"{len(wishes):,} {'person' if unit else 'example'}{'' if len(wishes) == 1 else 's'}"
    confirm(f"The labels of {whose} of {people or population} are erased.", yes)
    requests = [
        [asks.request(name, wishes[at : at + MOST_IDS], COMMAND_LINE)[1] for at in range(0, len(wishes), MOST_IDS)]
        for name in names
    ]
    waiting = party.erasures.finish()
    what = "units" if unit else "ids"

    recalls = party.database.read("erasure.told", lambda c: [_recalled(party, c, n, wishes, unit) for n in names])
    outcomes: list[dict[str, Any]] = [
        {
            "population": name,
            "examples": sum(a["examples"] for a in answers) if unit else len(set(wanted)),
            "waiting": waiting,
            "unmatched": sum(a["unmatched"] for a in answers),
            f"unmatched_{what}": [one for a in answers for one in a[f"unmatched_{what}"]],
            "cannot_be_recalled": recalled,
        }
        for name, answers, recalled in zip(names, requests, recalls, strict=True)
    ]

    def human() -> None:
        for outcome in outcomes:
            if people:
                echo(f"Population {outcome['population']}:")
            _show_erased(outcome, what, unit)

    emit(outcomes if people else outcomes[0], as_json, human)


def _recalled(
    party: Any, connection: Any, population: str, asked: list[str], units: list[str] | None
) -> list[dict[str, Any]]:
    """Every release and answer once that carries a value made of one of these labels."""
    from labels_party.labels.unit_erasures import recalled

    found = party.populations.get(connection, population)
    of = party.unit_erasures.digests(found, asked) if units else []
    erasures: list[ErasureOut] = []
    step = 500  # rows of one statement
    for start in range(0, len(of or asked), step):
        part = slice(start, start + step)
        ids, digests = ([], of[part]) if units else (asked[part], [])
        limit = 1 << 30
        erasures += party.erasures.list(connection, found, ids=ids, units=digests, after="", limit=limit)
    return recalled(erasures)


def _show_erased(data: dict[str, Any], what: str, units: list[str] | None) -> None:
    count, unmatched = data["examples"], data["unmatched"]
    subject = "1 example: its label" if count == 1 else f"{count:,} examples: their labels"
    verb = "counts" if count == 1 else "count"
    then = "; those of a batch that is being drawn follow its release" if data["waiting"] else ""
    later = ", nor will any that comes later of the same person" if units else ""
    echo(f"{subject} no longer {verb}{later}{then}.")
    if unmatched:
        some = data[f"unmatched_{what}"][:MOST_SHOWN]
        more = ", …" if unmatched > len(some) else ""
        say(f"No batch of this population has an example of {unmatched:,} of these {what}: {', '.join(some)}{more}.")
    if data["cannot_be_recalled"]:
        rows = [[r["work"], r["published"], ", ".join(r["audiences"])] for r in data["cannot_be_recalled"]]
        table("Published before, and cannot be recalled", ["release or answer", "published", "for"], rows)


@app.command(rich_help_panel=OFFICER)
def erasures(
    population: PopulationName,
    example: Annotated[list[str] | None, typer.Option("--id", help="Only of these examples; repeatable.")] = None,
    unit: Units = None,
    limit: Annotated[
        int, typer.Option(parser=whole("--limit", 1), metavar="INTEGER", help="At most this many.")
    ] = 1000,
    as_json: Json = False,
) -> None:
    """What was erased, and which releases cannot be recalled."""
    party = services(existing=True)

    def look(connection: Any) -> list[ErasureOut]:
        found = party.populations.get(connection, population)
        units = party.unit_erasures.digests(found, unit) if unit else []
        erasures: list[ErasureOut] = party.erasures.list(
            connection, found, ids=list(example or []), after="", limit=limit, units=units
        )
        return erasures

    found = party.database.read("erasure.list", look)

    def human() -> None:
        rows = [
            [
                *(str(e[name] or "") for name in ("id", "requested", "state", "effect", "batch")),
                e["requested_by_name"] or e["requested_by"],
                ", ".join(r["work"] for r in e["cannot_be_recalled"]),
            ]
            for e in found
        ]
        heads = ["id", "requested", "state", "erased", "batch", "asked for by", "cannot be recalled"]
        table("Erasures", heads, rows)

    emit(found, as_json, human)


def _read(path: TablePath, column: str) -> list[str]:
    from label_dp.columnar.parts import TableParts, read_rows
    from label_dp.columnar.tables import read_bytes

    if isinstance(path, TableParts) or path.suffix.lower() in (".parquet", ".csv"):
        values = read_rows(path, text_columns=[column], columns=[column])[column].to_pylist()
        if any(value is None for value in values):
            raise InvalidFile(f"A row of '{path}' has no id.")
        return [str(value) for value in values]
    try:
        return [line for line in read_bytes(path).decode("utf-8").splitlines() if line]
    except UnicodeDecodeError:
        raise InvalidFile(f"'{path}' is not UTF-8 text with one id a line.") from None
