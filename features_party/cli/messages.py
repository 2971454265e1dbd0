"""`pull` and `verify`: privatized messages, and signed answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from features_party.cli.app import LabelsKey, app, public_key, services
from features_party.cli.door import ApiKeyFile, Url, labels_party
from label_dp.cli.numbers import real
from label_dp.cli.output import echo, emit, progress, table
from label_dp.cli.party_commands import Force, Json
from label_dp.errors import InvalidInput
from label_dp.numbers import decimal_of

WAIT_SECONDS = 3600.0
WaitForAnswer = Annotated[
    float,
    typer.Option(
        parser=real("--wait", 0),
        metavar="[SECONDS]",
        help="How long to wait until it is published, an hour by default; 0 only asks.",
        show_default=False,
    ),
]


class OptionalSeconds(TyperCommand):
    """`--wait` may stand without its seconds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        bare = [a == "--wait" and not _is_number(args[i + 1 : i + 2]) for i, a in enumerate(args)]
        spelt = [f"--wait={WAIT_SECONDS:g}" if b else a for a, b in zip(args, bare, strict=True)]
        return list(super().parse_args(ctx, spelt))


def _is_number(following: list[str]) -> bool:
    try:
        return bool(following) and decimal_of(following[0]) >= 0
    except ValueError:
        return False


@app.command(cls=OptionalSeconds)
def pull(
    url: Url = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the message goes (.parquet), its manifest beside it; with --since a folder. With --answer a "
            "copy (.json), where one is wanted."
        ),
    ] = None,
    release: Annotated[str | None, typer.Option(help="Id of a release.")] = None,
    answer: Annotated[
        str | None, typer.Option(help="Instead of --release: id of an answer (calibration, median, prediction).")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DAY|RELEASE",
            help="Instead of --release: all releases for us that were published on this day (2026-11-01), or on that "
            "of this release, or later.",
        ),
    ] = None,
    population: Annotated[str | None, typer.Option(help="With --since: only this population (name or id).")] = None,
    wait: Annotated[
        float,
        typer.Option(
            parser=real("--wait", 0),
            metavar="[SECONDS]",
            help="Wait until it is published; without a number an hour.",
            show_default=False,
        ),
    ] = 0.0,
    labels_key: LabelsKey = None,
    api_key_file: ApiKeyFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Download messages, verifying each manifest first and every byte before it gets its name; or a signed answer.

    Each is accounted for in our audit store, and the labels party is sent our signed receipts. An answer is kept in
    our home folder (`answers list`).
    """
    from features_party.bootstrap import reader
    from features_party.receive.pull_since import Patience, await_published, pull_since

    if [release, since, answer].count(None) != 2:
        raise InvalidInput("Give --release for one release, --since for all since a day, or --answer for an answer.")
    if population is not None and since is None:
        raise InvalidInput("--population goes with --since; a release or an answer has one population.")
    if answer is not None:
        from features_party.cli.answers import pull_to

        pull_to(out, url, answer, public_key(labels_key), api_key_file, wait, force, as_json)
        return
    if out is None:
        raise InvalidInput("Say with --out where the message goes.")
    key = public_key(labels_key)
    settings, _ = reader()
    patience = Patience(wait)

    with progress("pull", as_json) as report, labels_party(url, api_key_file) as service:
        arrivals = services().arrivals(key)
        if since is not None:
            found = pull_since(
                service,
                since,
                population,
                arrivals.choose_key,
                settings.name,
                out,
                patience,
                report,
                bring=partial(arrivals.pull, service, force=force),
                arrived=arrivals.message,
            )
        else:
            if patience.seconds:
                await_published(service, str(release), patience, report)
            got = arrivals.pull(service, str(release), out, report, force=force)
        delivery = arrivals.acknowledge(service)
    said = {"receipts": delivery.as_json() if delivery is not None else None}

    def tell() -> None:
        if delivery is not None:
            echo(delivery.sentence)

    if since is not None:

        def listing() -> None:
            _show(found, out)
            tell()

        emit({"folder": str(out), "since": since, "messages": found} | said, as_json, listing)
        return
    data = {
        "message": str(got.path),
        "release": got.manifest.id,
        "rows": got.manifest.n,
        "bytes": got.bytes,
        "manifest_digest": got.digest,
        "epsilon": got.manifest.epsilon.as_signed(),
        "fresh": got.fresh,
    } | said
    there = "" if got.fresh else " (it was there already)"

    def human() -> None:
        echo(f"{got.path}: {got.manifest.n:,} rows, ε {got.manifest.epsilon.total}{there}")
        tell()

    emit(data, as_json, human)


def _show(found: list[dict[str, Any]], folder: Path) -> None:
    if not found:
        echo("nothing was published for us since then, or --population names none of ours")
        return
    rows = [[f["release"], f["published"], f"{f['rows']:,}", f["epsilon"], "new" if f["fresh"] else ""] for f in found]
    table(f"Messages in {folder}", ["release", "published", "rows", "ε", ""], rows)


@app.command()
def verify(
    path: Annotated[
        Path, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder, or an answer (.json).")
    ],
    labels_key: LabelsKey = None,
    as_json: Json = False,
) -> None:
    """Check signature, audience and every byte. Writes nothing."""
    from features_party.bootstrap import reader
    from features_party.receive.accepted import message_summary
    from label_dp.documents.bundle import Bundle, open_message

    settings, pinned = reader()
    if path.suffix in (".json", ".ndjson") and path.is_file():
        from features_party.cli.answers import verify_answers

        verify_answers(path, public_key(labels_key), as_json)
        return
    key = public_key(labels_key) or pinned.for_envelope(Bundle(path).envelope())
    message = pinned.unless_rehearsed(open_message(path, key, settings.name, rehearsals=True), key).check()
    data = {"verified": True, "message": str(path), **message_summary(message.manifest, message.digest)}

    def human() -> None:
        from features_party.cli.show import show_message

        show_message(data)

    emit(data, as_json, human)
