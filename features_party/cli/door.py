"""The labels party that a command calls: its URL, our key there, and what to say when it does not know the key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from shared.errors import InvalidInput, Unauthenticated

NO_KEY = "Set FEATURES_PARTY_LABELS_API_KEY, or give --api-key, to the key that the labels party made for us."
ApiKey = Annotated[str | None, typer.Option(help="Our key there; better in FEATURES_PARTY_LABELS_API_KEY.")]


@contextmanager
def labels_party(url: str, api_key: str | None) -> Iterator[Any]:
    """The labels party at `url`, as ourselves. Raises InvalidInput and NotFound for a URL that may not be called."""
    from features_party.bootstrap import reader
    from features_party.labels_service import LabelsService
    from features_party.labels_url import labels_url, permitted

    settings, _ = reader()
    if settings.labels_urls:  # without a list, whoever set the key here also typed the URL
        url = permitted(url, settings.labels_urls, own_key=api_key is not None)
    url = labels_url(url)
    known = api_key or (settings.labels_api_key.get_secret_value() if settings.labels_api_key else None)
    if known is None:
        raise InvalidInput(f"The labels party gives messages to those with a key only. {NO_KEY}")
    try:
        with LabelsService(url, known) as service:
            yield service
    except Unauthenticated as error:
        raise Unauthenticated(f"{error.detail} {NO_KEY}") from None
