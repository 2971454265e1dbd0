"""`answers`: the signed answers that this party accepted, of whatever kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from features_party.cli.app import LabelsKey, app, public_key, services
from features_party.cli.door import labels_party
from label_dp.cli.answers import Csv, Parquet, show_written, write_groupings
from label_dp.cli.output import echo, emit, progress, table
from label_dp.cli.panels import AROUND
from label_dp.cli.party_commands import Force, Json
from label_dp.store.output_files import paid_for, replacing, writable

answers = typer.Typer(help="Signed answers: accept, list, show. `pull --answer` fetches one.", no_args_is_help=True)
app.add_typer(answers, name="answers", rich_help_panel=AROUND)
COLUMNS = ["answer", "kind", "population_name", "batch", "n", "epsilon", "accepted"]


@answers.command("list")
def answers_list(as_json: Json = False) -> None:
    """The answers that we accepted, oldest first."""
    from features_party.receive.acceptances import ANSWER

    rows = services(existing=True).acceptances.list(ANSWER)

    def human() -> None:
        if not rows:
            echo("no answers yet: `pull --answer` fetches one, `answers accept` takes a file")
            return
        shown = [row | {"n": f"{row['n']:,}", "epsilon": row["epsilon"]["total"]} for row in rows]
        table(
            "Answers",
            ["answer", "kind", "population", "batch", "examples", "ε", "accepted"],
            [[str(row[c]) for c in COLUMNS] for row in shown],
        )

    emit(rows, as_json, human)


@answers.command("show")
def answers_show(
    answer: Annotated[str, typer.Argument(metavar="ANSWER", help="Its id, or the digest of its document.")],
    out: Annotated[Path | None, typer.Option(help="Write the signed document to this file (.json).")] = None,
    csv: Csv = None,
    parquet: Parquet = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What an accepted answer says and what it cost."""
    from features_party.cli.show import show_answer
    from label_dp.documents.registry import KINDS

    found = services(existing=True).answers.open(answer)
    if out is not None:
        with replacing(out, force) as target:
            target.write_bytes(found.envelope)
    files = []
    if csv is not None or parquet is not None:
        files = write_groupings([KINDS[found.answer.kind].shown(found.answer)], csv, parquet, force=force)

    def human() -> None:
        show_answer(found)
        show_written(files)

    emit(found.summary() | ({"files": files} if files else {}), as_json, human)


@answers.command("accept")
def answers_accept(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="A signed document (.json), or one a line, as predictions.")
    ],
    labels_key: LabelsKey = None,
    as_json: Json = False,
) -> None:
    """Account for answers that came as files, and keep them. All are verified before the first is accounted for."""
    from label_dp.documents.answer import read_answers

    key = public_key(labels_key)
    envelopes = [envelope for file in files for envelope in read_answers(file)]
    party = services()
    for envelope in envelopes:
        party.answers.verify(envelope, key)
    accepted = [party.answers.accept(envelope, key) for envelope in envelopes]
    data = [found.summary() | {"fresh": found.fresh} for found in accepted]

    def human() -> None:
        for found in accepted:
            echo(line(found))

    emit(data, as_json, human)


def verify_answers(file: Path, key: Any, as_json: bool) -> None:
    """`verify` of a file of answers: nothing is written."""
    from features_party.bootstrap import reader
    from features_party.cli.show import show_answer
    from features_party.receive.answers import verified_answer
    from label_dp.documents.answer import read_answers

    settings, pinned = reader()
    signed_answers = [
        verified_answer(envelope, key or pinned.for_envelope(envelope), settings.name)
        for envelope in read_answers(file)
    ]
    said = [{"verified": True, "document": str(file), **each.summary()} for each in signed_answers]

    def human() -> None:
        for each in signed_answers:
            show_answer(each)

    emit(said[0] if len(said) == 1 else said, as_json, human)


def fetch(
    url: str | None, answer: str, key: Any, api_key_file: Path | None, wait: float, quiet: bool
) -> tuple[Any, Any]:
    """(the answer, accounted for and kept; the delivery of our receipts)."""
    from features_party.receive.pull_since import Patience, await_published

    with progress("pull", quiet) as report, labels_party(url, api_key_file) as service:
        party, patience = services(), Patience(wait)
        if patience.seconds:
            await_published(service, answer, patience, report, noun="answer")
        arrivals = party.arrivals(key)
        return arrivals.pull_answer(service, answer), arrivals.acknowledge(service)


def pull_to(
    out: Path | None,
    url: str | None,
    answer: str,
    key: Any,
    api_key_file: Path | None,
    wait: float,
    force: bool,
    as_json: bool,
) -> None:
    """`pull --answer`, with a copy at `out` where one is wanted."""
    if out is not None:
        writable(out, force)
    found, delivery = fetch(url, answer, key, api_key_file, wait, as_json)
    if out is not None:
        with paid_for(f"features-party answers show {answer} --out FILE writes it"), replacing(out, force) as target:
            target.write_bytes(found.envelope)
    data = found.summary() | {"fresh": found.fresh, "document": None if out is None else str(out)}

    def human() -> None:
        echo(line(found))
        echo(delivery.sentence)

    emit(data | {"receipts": delivery.as_json()}, as_json, human)


def line(found: Any) -> str:
    """An accepted answer in a few words."""
    known = "" if found.fresh else " (accounted for before)"
    return f"{found.answer.kind} {found.answer.id}: ε {found.answer.epsilon.total}{known}"
