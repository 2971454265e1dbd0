"""Client of the labels party: the few calls of its REST interface that a features party makes. Replies are not trusted:
they are bounded and read strictly here, and `features_party.receive.pull` verifies files."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

import httpx

from label_dp import errors
from label_dp.client import labels_paths as at
from label_dp.client.addresses import is_local, is_public, is_reserved, literal
from label_dp.client.budgets import Budget
from label_dp.client.conversation import ARROW, JSON, PARQUET, Conversation, Json, Request, ask, get, path
from label_dp.client.declared import BlockingClient, call
from label_dp.client.downloads import Bytes, download
from label_dp.client.drivers import Blocking
from label_dp.client.listings import linked
from label_dp.client.peer import RETRIES, Peer, problem_of
from label_dp.client.published import PublishedCalls
from label_dp.client.transport import Transport
from label_dp.documents.arriving import Arriving
from label_dp.documents.invitation import ORIGIN, service_url
from label_dp.errors import Refusal

MOST_MISSING = 1000
LISTED = "FEATURES_PARTY_LABELS_URLS"  # the setting
PIECE = 1 << 20  # bytes of a body per write
MAX_DETAIL = 200
TIMEOUT = httpx.Timeout(30.0, connect=10.0, read=120.0)
SECONDS = 150.0  # of a request, without the allowance for its size
SERVICE_RETRIES = 5  # over six seconds: a caller is waiting and may repeat the call
KINDS: dict[int, type[errors.LabelDPError]] = {
    401: errors.Unauthenticated,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.PreconditionFailed,
    416: errors.RangeNotSatisfiable,
    422: errors.InvalidInput,
}

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MEMBERS = {
    "id": _ID,
    "published": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
    "population_name": re.compile(r".{1,400}"),
    "epsilon": re.compile(r"[0-9.]{1,40}"),
    "manifest_sha256": _HEX,
}


def permitted(url: str, allowed: Sequence[str], *, own_key: bool) -> str:
    """Return the normalised `url` if it may be called. A caller may name any URL, so it decides neither who receives
    our key nor, if the operator listed the labels parties, whom this service calls.

    `own_key`: a key of the caller's or of the URL's invitation is sent, not the configured one. Raises InvalidInput
    (not a plain URL, or our key would go to an unlisted URL) and NotFound (not listed).
    """
    target = service_url(url)
    if allowed and target not in {service_url(entry) for entry in allowed}:
        raise errors.NotFound(f"This service does not call that labels party; its operator lists them in {LISTED}.")
    if not allowed and not own_key:
        raise errors.InvalidInput(
            f"Give api_key, your key at that labels party; the configured one goes only to a URL listed in {LISTED}."
        )
    return target


@dataclass(frozen=True)
class ReleaseEntry:
    """One entry of the labels party's list. Nothing in it is verified; `id` is a plain name, fit for a file."""

    id: str
    published: str
    population_name: str
    epsilon: str
    manifest_sha256: str


class LabelsService(PublishedCalls, BlockingClient):
    """Client of one labels party at `url`; use as a context manager. Errors are typed; texts never hold the API key.

    `files` and `closed` limit redirects for files (`FileRules`); `tls` is the trust (`Transport`); `within` bounds the
    time of all calls together.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        files: tuple[str, ...] = (),
        closed: bool = False,
        tls: ssl.SSLContext | bool = True,
        within: Budget | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        base = service_url(url)
        self.files = FileRules(base, files, closed)
        peer = Peer(
            "labels party", base, api_key, RETRIES if within is None else SERVICE_RETRIES, refusal=_refused, wary=True
        )
        # a redirect would carry the key to another host: only those of files are followed, without it
        transport = transport or Transport(SECONDS, tls=tls, within=within)
        http = httpx.Client(timeout=TIMEOUT, transport=transport, follow_redirects=False)
        self.wire = Blocking(peer, http, sleep or (time.sleep if within is None else within.sleep))

    @call
    def published(self, since: str, population: str | None = None) -> Conversation[list[ReleaseEntry]]:
        """List releases published for us on the day `since` (2026-11-01) or later, oldest first. Raises Unavailable."""
        return linked(at.RELEASES, _listed, since=since, population=population)

    @call
    def download(self, release: str, part: Arriving, on_bytes: Bytes = lambda _n: None) -> Conversation[None]:
        """Stream the missing bytes of a release's file into `part`, resuming after interruptions; verified at the end.
        Thread-safe. Raises Unavailable, NotFound, DigestMismatch."""
        return download(path(at.FILE, release, part.entry.name), part, on_bytes, self.files.allow)

    @call
    def receipts(self) -> Conversation[list[Json]]:
        """Return how far our receipts are stored there: key_id, last, digest, missing of each key. Raises
        Unavailable."""
        states = (yield from get(at.RECEIPTS)).get("keys")
        if not isinstance(states, list) or not all(_receipt_state(state) for state in states):
            raise errors.Unavailable("The labels party's answer about receipts is malformed.")
        return states

    @call
    def signing_keys(self) -> Conversation[Json]:
        """Return the present signing key and the signed hand-overs to it. Raises NotFound on an earlier version."""
        return get(at.SIGNING_KEYS)

    @call
    def send_receipt(self, release: str, envelope: bytes) -> Conversation[None]:
        """Deliver the receipt of a release; repeating it is harmless."""
        yield Request("POST", path(at.RELEASE_RECEIPT, release), content=envelope, content_type=JSON)

    @call
    def send_answer_receipt(self, answer: str, envelope: bytes) -> Conversation[None]:
        """Deliver the receipt of an answer; repeating it is harmless."""
        yield Request("POST", path(at.ANSWER_RECEIPT, answer), content=envelope, content_type=JSON)

    @call
    def send_ids(self, batch: str, parquet: Path) -> Conversation[Json]:
        """Declare the example ids of an open batch: a Parquet file with the one column example_id."""
        content = parquet.read_bytes()
        answer = yield from ask(Request("PUT", path(at.EXAMPLES, batch), content=content, content_type=PARQUET))
        # known members only: the caller is shown them, and the reply is not trusted
        result: Json = {}
        if isinstance(answer.get("batch"), str):
            result["batch"] = _printable(answer["batch"])
        if type(answer.get("examples")) is int:
            result["examples"] = answer["examples"]
        return result

    @call
    def ask_calibration(
        self, batch: str, scores: bytes, query: dict[str, Any], on_bytes: Bytes = lambda _n: None
    ) -> Conversation[dict[str, str]]:
        """Order a calibration from `scores`, an Arrow stream; returns `answer` (its id) and `state`. The batch is
        charged.

        The same scores and query again, also by another process, return the same calibration without further charge.
        """
        return _charged(path(at.CALIBRATIONS, batch), query, scores, ARROW, on_bytes)

    @call
    def ask_sums(
        self, batch: str, table: bytes, query: dict[str, Any], on_bytes: Bytes = lambda _n: None
    ) -> Conversation[dict[str, str]]:
        """Order sums by columns of `table`, a Parquet file; otherwise as `ask_calibration`."""
        return _charged(path(at.SUMS_OF_TABLE, batch), query, table, PARQUET, on_bytes)


def _charged(
    where: str, query: dict[str, Any], content: bytes, content_type: str, on_bytes: Bytes
) -> Conversation[dict[str, str]]:
    operation = f"{where}?{urlencode(query, doseq=True)}".encode()
    request = Request(
        "POST",
        where,
        params=query,
        content=_Pieces(content, on_bytes),
        content_type=content_type,
        headers={"Content-Length": str(len(content))},
        key=hashlib.sha256(operation + b"\0" + content).hexdigest(),
    )
    data = yield from ask(request)
    answer, state = data.get("id"), data.get("state")
    if not (isinstance(answer, str) and _ID.fullmatch(answer) and isinstance(state, str)):
        raise errors.Unavailable("The labels party's reply names no answer; check that the URL is its service's.")
    return {"answer": answer, "state": _printable(state)}


@dataclass(frozen=True)
class _Pieces:
    """Body in pieces, from its beginning at every attempt; `on_bytes` gets the number of bytes passed on."""

    data: bytes
    on_bytes: Bytes

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self.data), PIECE):
            yield self.data[start : start + PIECE]
            self.on_bytes(min(start + PIECE, len(self.data)))


def _listed(entry: Any) -> ReleaseEntry | None:
    members = {name: entry.get(name) for name in _MEMBERS} if isinstance(entry, dict) else {"id": None}
    if not all(isinstance(value, str) and _MEMBERS[name].fullmatch(value) for name, value in members.items()):
        return None
    return ReleaseEntry(**members | {"population_name": _printable(str(members["population_name"]))})


def _receipt_state(data: Any) -> bool:
    if not isinstance(data, dict) or not isinstance(data.get("key_id"), str):
        return False
    last, digest, missing = data.get("last"), data.get("digest"), data.get("missing")
    digested = digest is None if last == 0 else isinstance(digest, str) and _HEX.fullmatch(digest) is not None
    if not isinstance(missing, list) or len(missing) > MOST_MISSING:
        return False
    numbers = all(type(m) is int and 0 < m < 1 << 53 for m in missing)
    return type(last) is int and 0 <= last < 1 << 53 and digested and numbers


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_DETAIL])[:MAX_DETAIL]


def _refused(response: httpx.Response) -> errors.LabelDPError:
    """Map the labels party's refusal to our error of like meaning, with a short printable detail."""
    problem = problem_of(response)
    text = problem.problem.get("detail")
    detail = _printable(text) if isinstance(text, str) else f"status {response.status_code}"
    kind = KINDS.get(response.status_code, errors.Refusal)
    if problem.problem_code == errors.IdempotencyInFlight.code:
        kind = errors.IdempotencyInFlight
    return kind(f"The labels party answered: {detail}")


# Redirects of a labels party for a message's file, to a signed URL of an object store for example. The file is verified
# by the digest in the signed manifest; these rules decide whom we call.
SETTING = "FEATURES_PARTY_FILE_URLS"
MAX_URL = 8000
# plain ASCII only, as for labels parties; the query carries the store's signature
_URL = re.compile(
    rf"(?P<origin>{ORIGIN})(?P<path>(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*)(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?",
    re.ASCII | re.IGNORECASE,
)
# allowed in a decoded segment beside letters and digits: nothing that a server may read as a slash, as the end of a
# segment, or decode again
_MARKS = frozenset(" ._~!$&'()*+,=:@-")


@dataclass(frozen=True)
class FileRules:
    """Rules for redirects to files. `labels`: the labels party's own URL as `service_url` spells it. `listed`: the
    operator's object stores. `closed`: the operator lists every callable URL."""

    labels: str
    listed: tuple[str, ...] = ()
    closed: bool = False

    def allow(self, location: str) -> str:
        """Return the URL of a redirect. Raises Refusal, whose text never quotes it.

        Plain http after https is refused. A list decides alone. Without a list, https may lead to public addresses and
        names, and plain http only to the host of the labels party, if that is called over plain http itself.
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
        origin = service_url(match["origin"])
        if origin == service_url(f"{own.scheme}://{own.netloc}"):
            return url
        if self.listed or self.closed:
            if not any(_within(origin, match["path"], entry) for entry in self.listed):
                raise _refusal(f"that is not listed; the operator lists object stores in {SETTING}")
            address = literal(host)
            if address is not None and is_reserved(address):
                raise _refusal("that no service answers from")
        elif scheme == "http" and host != _host(self.labels):
            raise _refusal(f"over plain http; list it in {SETTING} if that is meant")
        elif scheme == "https" and not _public(host) and host != _host(self.labels):
            raise _refusal(f"in a private network; list it in {SETTING} if that is meant")
        return url


def _within(origin: str, path: str, entry: str) -> bool:
    parts = urlsplit(service_url(entry))
    return origin == f"{parts.scheme}://{parts.netloc}" and f"{path}/".startswith(f"{parts.path}/")


def _host(url: str) -> str:
    match = _URL.fullmatch(url)
    return match["host"].lower() if match is not None else ""


def _stays(path: str) -> bool:
    """Return whether the path cannot climb, however often a server decodes it."""
    for segment in path.split("/"):
        try:
            plain = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            return False
        if plain in (".", "..") or not all(c.isalnum() or c in _MARKS for c in plain):
            return False
    return True


def _public(host: str) -> bool:
    """Return whether a host is public. Names are: over https the certificate must match, which no neighbour has by
    chance."""
    address = literal(host)
    return not is_local(host) if address is None else is_public(address)


def _refusal(why: str) -> Refusal:
    return Refusal(f"The labels party sent us for a file to a place {why}. Nothing was fetched from there.")
