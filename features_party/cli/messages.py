"""`pull` and `verify`: privatized messages."""

from __future__ import annotations

from typing import Annotated

import typer

from features_party.cli.app import FilePath, Json, LabelsKey, app, public_key
from shared.service.cli import emit, progress


@app.command()
def pull(
    url: Annotated[str, typer.Option(help="The labels party's service, for example http://127.0.0.1:8001.")],
    release: Annotated[str, typer.Option(help="Id of a published release.")],
    out: Annotated[FilePath, typer.Option(help="Where the message goes (.parquet); its manifest is put beside it.")],
    labels_key: LabelsKey = None,
    api_key: Annotated[str | None, typer.Option(help="Our key there; better in FEATURES_PARTY_LABELS_API_KEY.")] = None,
    as_json: Json = False,
) -> None:
    """Download a message, verifying its manifest first and every byte before it gets its name."""
    from features_party.bootstrap import reader
    from features_party.labels_service import LabelsService
    from features_party.labels_url import permitted
    from features_party.pull import pull as run_pull

    settings, pinned = reader()
    key = public_key(labels_key)
    if settings.labels_urls:  # without a list, whoever set the key here also typed the URL
        url = permitted(url, settings.labels_urls, own_key=api_key is not None)
    known = settings.labels_api_key.get_secret_value() if settings.labels_api_key else None
    with progress("pull", as_json) as report, LabelsService(url, api_key or known) as service:
        got = run_pull(
            service, release, lambda e: key if key is not None else pinned.for_envelope(e), settings.name, out, report
        )
    data = {
        "message": str(got.path),
        "release": got.manifest.release,
        "rows": got.manifest.n,
        "bytes": got.bytes,
        "manifest_digest": got.digest,
        "epsilon": dict(got.manifest.epsilon),
    }
    emit(data, as_json, lambda: typer.echo(f"{got.path}: {got.manifest.n:,} rows, ε {got.manifest.split.total}"))


@app.command()
def verify(
    path: Annotated[FilePath, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder.")],
    labels_key: LabelsKey = None,
    as_json: Json = False,
) -> None:
    """Check signature, audience and every byte. Writes nothing."""
    from features_party.bootstrap import reader
    from features_party.intake.accepted import summary
    from shared.message.bundle import Bundle
    from shared.message.bundle import verify as check

    settings, pinned = reader()
    found = check(path, public_key(labels_key) or pinned.for_envelope(Bundle(path).envelope()), settings.name)
    data = {"verified": True, "message": str(path), **summary(found.manifest, found.digest)}

    def human() -> None:
        from features_party.cli.show import show_message

        show_message(data)

    emit(data, as_json, human)
