"""`answers`: the signed answers that this party accepted, of whatever kind."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from features_party.cli.app import FilePath, Force, Json, LabelsKey, app, public_key, services
from features_party.cli.door import labels_party
from features_party.cli.show_answers import show_answer
from shared.errors import InvalidFile
from shared.service.cli import emit, progress, replacing, table, writable

answers = typer.Typer(help="Signed answers: accept, list, show. `pull --answer` fetches one.", no_args_is_help=True)
app.add_typer(answers, name="answers")
COLUMNS = ["answer", "kind", "population_name", "batch", "n", "epsilon", "accepted"]


@answers.command("list")
def answers_list(as_json: Json = False) -> None:
    """The answers that we accepted, oldest first."""
    rows = services(existing=True).answers.list()

    def human() -> None:
        if not rows:
            typer.echo("no answers yet: `pull --answer` fetches one, `answers accept` takes a file")
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
    out: Annotated[FilePath | None, typer.Option(help="Write the signed document to this file (.json).")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What an accepted answer says and what it cost."""
    found = services(existing=True).answers.open(answer)
    if out is not None:
        with replacing(out, force) as target:
            target.write_bytes(found.envelope)
    emit(found.summary(), as_json, lambda: show_answer(found))


@answers.command("accept")
def answers_accept(
    files: Annotated[
        list[FilePath], typer.Argument(metavar="FILE", help="A signed document (.json), or one a line, as predictions.")
    ],
    labels_key: LabelsKey = None,
    as_json: Json = False,
) -> None:
    """Account for answers that came as files, and keep them. All are verified before the first is accounted for."""
    key = public_key(labels_key)
    envelopes = [envelope for file in files for envelope in _envelopes(file)]
    party = services()
    for envelope in envelopes:
        party.answers.verify(envelope, key)
    accepted = [party.answers.accept(envelope, key) for envelope in envelopes]
    data = [found.summary() | {"fresh": found.fresh} for found in accepted]

    def human() -> None:
        for found in accepted:
            typer.echo(line(found))

    emit(data, as_json, human)


def verify_answers(file: FilePath, key: Any, as_json: bool) -> None:
    """`verify` of a file of answers: nothing is written."""
    import shared.message.kinds  # noqa: F401 - registers what an answer may be
    from features_party.bootstrap import reader
    from features_party.intake.answers import SignedAnswer
    from shared.message.answer import trusted_answer

    settings, pinned = reader()
    found = []
    for envelope in _envelopes(file):
        answer, digest = trusted_answer(envelope, key or pinned.for_envelope(envelope), settings.name)
        found.append(SignedAnswer(answer, digest, envelope))
    said = [{"verified": True, "document": str(file), **each.summary()} for each in found]

    def human() -> None:
        for each in found:
            show_answer(each)

    emit(said[0] if len(said) == 1 else said, as_json, human)


def fetch(url: str, answer: str, key: Any, api_key: str | None, wait: float, quiet: bool) -> tuple[Any, Any]:
    """(the answer, accounted for and kept; the delivery of our receipts)."""
    from features_party.arrivals import Arrivals
    from features_party.pull import pull_answer
    from features_party.pull_since import Patience, await_published

    with progress("pull", quiet) as report, labels_party(url, api_key) as service:
        party, patience = services(), Patience(wait)
        if patience.seconds:
            await_published(service, answer, patience, report, noun="answer")

        def choose(envelope: bytes) -> Any:
            return key if key is not None else party.pinned.for_envelope(envelope)

        arrivals = Arrivals(party, key)
        found = arrivals.answer(pull_answer(service, answer, choose, party.settings.name))
        return found, arrivals.acknowledge(service)


def pull_to(
    out: FilePath | None,
    url: str,
    answer: str,
    key: Any,
    api_key: str | None,
    wait: float,
    force: bool,
    as_json: bool,
) -> None:
    """`pull --answer`, with a copy at `out` where one is wanted."""
    if out is not None:
        writable(out, force)
    found, delivery = fetch(url, answer, key, api_key, wait, as_json)
    if out is not None:
        with replacing(out, force) as target:
            target.write_bytes(found.envelope)
    data = found.summary() | {"fresh": found.fresh, "document": None if out is None else str(out)}

    def human() -> None:
        typer.echo(line(found))
        typer.echo(delivery.sentence)

    emit(data | {"receipts": delivery.as_json()}, as_json, human)


def _envelopes(file: FilePath) -> list[bytes]:
    """The documents in a file, one a line. Raises InvalidFile."""
    from shared.message.answer import MAX_ENVELOPE_BYTES

    try:
        with file.open("rb") as opened:
            found = [line.strip() for line in iter(lambda: opened.readline(MAX_ENVELOPE_BYTES + 1), b"")]
    except OSError as error:
        raise InvalidFile(f"'{file}' cannot be read ({error.strerror}).") from None
    if not any(found):
        raise InvalidFile(f"'{file}' holds no signed answer.")
    return [line for line in found if line]


def line(found: Any) -> str:
    """An accepted answer in a few words."""
    known = "" if found.fresh else " (accounted for before)"
    return f"{found.answer.kind} {found.answer.answer}: ε {found.answer.split.total}{known}"
