"""The labels party that a command calls: its URL, our key there, and what to say when it does not know the key."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from label_dp.cli.output import warn
from label_dp.errors import InvalidFile, InvalidInput, Unauthenticated

NO_KEY = (
    "Set FEATURES_PARTY_LABELS_API_KEY to the key that the labels party made for us, or give --api-key-file a file "
    "that holds it."
)
Url = Annotated[
    str | None,
    typer.Option(
        help="The labels party's service, for example http://127.0.0.1:8001; default the one whose invitation was "
        "accepted."
    ),
]
# never the key itself: other users of the machine see command lines
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="File with our key there, readable by us alone; default that of its invitation, else "
        "FEATURES_PARTY_LABELS_API_KEY."
    ),
]
MOST_BYTES = 1000
NOTED_SECONDS = 1.0


@contextmanager
def labels_party(url: str | None, api_key_file: Path | None) -> Iterator[Any]:
    """The labels party at `url`, or the one that invited us, as ourselves. Raises InvalidInput and NotFound for a URL
    that may not be called, and InvalidFile for a file of a key that others may read."""
    from features_party.bootstrap import reader
    from features_party.receive.labels_service import LabelsService, permitted
    from label_dp.documents.invitation import service_url

    settings, pinned = reader()
    url = service_url(url if url is not None else pinned.invited())
    api_key = pinned.api_key(url) if api_key_file is None else key_in(api_key_file)
    if settings.labels_urls:  # without a list, whoever set the key here also typed the URL
        url = permitted(url, settings.labels_urls, own_key=api_key is not None)
    known = api_key or (settings.labels_api_key.get_secret_value() if settings.labels_api_key else None)
    if known is None:
        raise InvalidInput(f"The labels party gives messages to those with a key only. {NO_KEY}")
    try:
        files, closed, tls = settings.file_urls, bool(settings.labels_urls), settings.labels_tls()
        with LabelsService(url, known, files=files, closed=closed, tls=tls, sleep=_pause) as service:
            yield service
    except Unauthenticated as error:
        raise Unauthenticated(f"{error.detail} {NO_KEY}") from None


def url_option(url: str | None) -> str:
    """The option that names the same labels party in another command."""
    return "" if url is None else f" --url {url}"


def _pause(seconds: float) -> None:
    """Between two tries; somebody at a terminal is told why nothing happens."""
    if seconds >= NOTED_SECONDS and sys.stderr.isatty():
        warn(f"The labels party does not answer yet; the next try is in {seconds:.0f} s.")
    time.sleep(seconds)


def key_in(path: Path) -> str:
    """The API key that a file holds. Raises InvalidFile, also where others than its owner may read it."""
    try:
        with path.open("rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None
    if os.name == "posix" and mode & 0o077:
        raise InvalidFile(
            f"'{path}' can be read by other users of this machine, and so can the key in it. Run chmod 600 on it, and "
            "have the labels party revoke the key if somebody may have read it."
        )
    key = text.strip()
    if not key or len(text) > MOST_BYTES or not key.isascii() or not key.decode().isprintable() or b" " in key:
        raise InvalidFile(f"'{path}' does not hold an API key: one line, as apikey create printed it.")
    return key.decode()
