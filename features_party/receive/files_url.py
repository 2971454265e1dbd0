"""URLs that a labels party may send us to for a file of a message: an object store with a URL that was signed for us,
say.

What lies there is not trusted either: it must have the digest of the signed manifest. These rules decide whom we call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

from features_party.receive.labels_url import ORIGIN, labels_url
from label_dp.client.addresses import is_local, is_public, is_reserved, literal
from label_dp.errors import Refusal

SETTING = "FEATURES_PARTY_FILE_URLS"
MAX_URL = 8000
# plain ASCII only, as of labels parties; the query is whatever signs it
_URL = re.compile(
    rf"(?P<origin>{ORIGIN})(?P<path>(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*)(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?",
    re.ASCII | re.IGNORECASE,
)
# what a segment may hold once it is decoded, beside letters and digits: nothing that a server may read as a slash, as
# the end of a segment, or as something to decode again
_MARKS = frozenset(" ._~!$&'()*+,=:@-")


@dataclass(frozen=True)
class FileRules:
    """`labels`: the labels party's own URL, in its one spelling. `listed`: object stores of the operator's choice.
    `closed`: whom this service calls is listed at all."""

    labels: str
    listed: tuple[str, ...] = ()
    closed: bool = False

    def allow(self, location: str) -> str:
        """The URL that a redirect leads to. Raises Refusal, whose text never quotes it.

        Never plain http after https. A list decides alone; without one it is https to public addresses and names, or
        plain http to the host of the labels party, which speaks plain http itself.
        """
        own = urlsplit(self.labels)
        here = location.startswith("/") and not location.startswith("//")
        url = f"{own.scheme}://{own.netloc}{location}" if here else location
        match = _URL.fullmatch(url) if len(url) <= MAX_URL else None
        if match is None or not _stays(match["path"]) or int(match["port"] or 0) > 65535:
            raise _refusal("that is no plain URL")
        scheme, host = match["scheme"].lower(), match["host"].lower()
        if own.scheme == "https" and scheme == "http":
            raise _refusal("over plain http, though we call it over https")
        origin = labels_url(match["origin"])
        if origin == labels_url(f"{own.scheme}://{own.netloc}"):
            return url
        if self.listed or self.closed:
            if not any(_within(origin, match["path"], known) for known in self.listed):
                raise _refusal(f"that is not listed; the operator lists object stores in {SETTING}")
            address = literal(host)
            if address is not None and is_reserved(address):
                raise _refusal("that no service answers from")
        elif scheme == "http" and host != _host(self.labels):
            raise _refusal(f"over plain http; list it in {SETTING} if that is meant")
        elif scheme == "https" and not _public(host) and host != _host(self.labels):
            raise _refusal(f"in a private network; list it in {SETTING} if that is meant")
        return url


def _within(origin: str, path: str, known: str) -> bool:
    parts = urlsplit(labels_url(known))
    return origin == f"{parts.scheme}://{parts.netloc}" and f"{path}/".startswith(f"{parts.path}/")


def _host(url: str) -> str:
    match = _URL.fullmatch(url)
    return match["host"].lower() if match is not None else ""


def _stays(path: str) -> bool:
    """Whether it leads to a place below each of its beginnings, however often a server decodes it."""
    for segment in path.split("/"):
        try:
            plain = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            return False
        if plain in (".", "..") or not all(c.isalnum() or c in _MARKS for c in plain):
            return False
    return True


def _public(host: str) -> bool:
    """A name is: over https its certificate must be for that name, which no neighbour of ours has by chance."""
    address = literal(host)
    return not is_local(host) if address is None else is_public(address)


def _refusal(why: str) -> Refusal:
    return Refusal(f"The labels party sent us for a file to a place {why}. Nothing was fetched from there.")
