"""URLs of labels parties: one strict spelling, and the rule which of them may receive our configured API key.

The URL comes with a trainer's call, so it is untrusted. It decides neither who receives the configured key nor, if the
operator listed the labels parties, whom this service calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from label_dp.errors import InvalidInput, NotFound

SETTING = "FEATURES_PARTY_LABELS_URLS"
MAX_URL = 2000
# plain ASCII only: parsers disagree about %, \, @ and dots as segments
ORIGIN = (
    r"(?P<scheme>https?)://(?P<host>[a-z0-9_]([a-z0-9._-]{0,252}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\])"
    r"(:(?P<port>[1-9][0-9]{0,4}))?"
)
_URL = re.compile(ORIGIN + r"(?P<path>(/[a-z0-9._~-]+)*)/?", re.ASCII | re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def labels_url(text: str) -> str:
    """Normalise a labels party's base URL: lower-case scheme and host, no default port, no slash at the end. Raises
    InvalidInput for anything but http(s)://host[:port][/plain/path]; the text never quotes the URL."""
    match = _URL.fullmatch(text) if len(text) <= MAX_URL else None
    port = int(match["port"] or 0) if match is not None else 0
    if match is None or port > 65535 or {".", ".."} & set(match["path"].split("/")):
        raise InvalidInput(
            "The labels party's URL must begin with http:// or https://, name a host and at most a port and a plain "
            "path, and have no user name, query or fragment; for example https://labels.example:8001."
        )
    scheme, host = match["scheme"].lower(), match["host"].lower()
    suffix = "" if port in (0, _DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{host}{suffix}{match['path']}"


def permitted(url: str, allowed: Sequence[str], *, own_key: bool) -> str:
    """Return the normalised `url` if it may be called. `own_key`: the caller brings an API key; ours is not sent.
    Raises InvalidInput (not a plain URL, or our key would go to an unlisted URL) and NotFound (not listed)."""
    target = labels_url(url)
    if allowed and target not in {labels_url(entry) for entry in allowed}:
        raise NotFound(f"This service does not call that labels party; its operator lists them in {SETTING}.")
    if not allowed and not own_key:
        raise InvalidInput(
            f"Give api_key, your key at that labels party; the configured one goes only to a URL listed in {SETTING}."
        )
    return target
