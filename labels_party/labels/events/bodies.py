"""Bodies of events: one core event object, an array of them, or one a line. Only what a rule can need is read."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from label_dp.errors import InvalidEvents, InvalidRows, RowProblem, TooLarge
from label_dp.schemas.events import CUSTOM, CUSTOM_PREFIX, LONGEST_NAME
from labels_party.labels.at_rest import EventKeys
from labels_party.labels.chunks import CHUNK_ROWS
from labels_party.labels.digests import U64, siphash128
from labels_party.labels.events.records import (
    EVENT,
    HAS_EXAMPLE,
    HAS_MMT,
    HAS_VALUE,
    MICRO,
    MMT_ONLY,
    Events,
    currency_number,
)
from labels_party.labels.formats.records import NOT_JSON
from labels_party.labels.formats.source import BLOCK, Source
from labels_party.labels.parsing import LATEST, SECONDS, canonical_column
from labels_party.ledger.event_rules import DataSet

if TYPE_CHECKING:
    import pyarrow as pa

MOST_DOCUMENT = 16 * BLOCK  # bytes of an object or array, which is read as a whole; lines may be any number
MOST_LINE = 1 << 18
MOST_VALUE = 10**9
EVENT_ROW = "event"
OBJECT = "must be an event object"
NO_DATA_SET = "names no data set whose events a population takes"
TEXT = "must be text"
CUSTOM_NAME = "must name the event, since event_type is custom"
VALUE = f"must be a number between -{MOST_VALUE:,} and {MOST_VALUE:,}"
CURRENCY = "must be an ISO 4217 code of three letters, since value is set"
OTHER_CURRENCY = "is not the currency that the rule of this data set takes"
BOOLEAN = "must be true or false"
NO_ID = "must be text of 1 to 1,024 bytes, a whole number, or absent"
LONGEST_ID = 1024
_CODE = re.compile("[A-Za-z]{3}")

Lines = Sequence[int] | None


@dataclass(frozen=True)
class EventRows:
    """Parsed events of a body, from row `start` on; `lines` of the body on which they stand."""

    start: int
    events: list[Any]
    lines: Lines = None


def event_rows(source: Source, *, lines: bool) -> Iterator[EventRows]:
    """Yield the events of a body, some at a time. Raises InvalidEvents, TooLarge."""
    yield from _lines(source) if lines else _document(source)


def _document(source: Source) -> Iterator[EventRows]:
    text = bytearray()
    while more := source.read():
        text += more
        if len(text) > MOST_DOCUMENT:
            raise TooLarge(
                f"A JSON document of events has at most {MOST_DOCUMENT >> 20} MiB. Send more as NDJSON "
                "(application/x-ndjson), one event a line, which is read as it arrives."
            )
    try:
        body = orjson.loads(bytes(text).removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        raise InvalidEvents([RowProblem(0, EVENT_ROW, NOT_JSON)]) from None
    events = body if isinstance(body, list) else [body]
    for start in range(0, len(events), CHUNK_ROWS):
        yield EventRows(start, events[start : start + CHUNK_ROWS])


def _lines(source: Source) -> Iterator[EventRows]:
    rest, line, start = b"", 1, 0
    while True:
        more = source.read()
        rest += more
        end = rest.rfind(b"\n") + 1 if more else len(rest)
        if len(rest) - end > MOST_LINE:
            raise InvalidEvents([RowProblem(start, EVENT_ROW, f"has at most {MOST_LINE:,} bytes", line)], 1)
        texts = rest[:end].split(b"\n")
        numbers = [line + i for i, text in enumerate(texts) if text.strip()]
        for first in range(0, len(numbers), CHUNK_ROWS):
            part = numbers[first : first + CHUNK_ROWS]
            yield EventRows(start, [_loaded(texts[n - line], start + i, n) for i, n in enumerate(part)], part)
            start += len(part)
        line, rest = line + len(texts) - 1, rest[end:]
        if not more:
            return


def _loaded(text: bytes, row: int, line: int) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidEvents([RowProblem(row, EVENT_ROW, NOT_JSON, line)], 1) from None


# --- what a rule can need of an event -----------------------------------------------------------------------


def stored_events(rows: EventRows, sets: Mapping[str, DataSet], keys: Mapping[str, EventKeys]) -> dict[str, Events]:
    """Return the events by data set, as they are stored. Raises InvalidEvents: rows and rules, never a value."""
    checks = _Checks(rows, range(len(rows.events)))
    checks.require([type(event) is dict for event in rows.events], EVENT_ROW, OBJECT)
    names = [event.get("data_set_id") for event in rows.events]
    checks.require([type(name) is str and name in sets for name in names], "data_set_id", NO_DATA_SET)
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return {
        name: _stored([rows.events[place] for place in of_set], sets[name], keys[name], _Checks(rows, of_set))
        for name, of_set in places.items()
    }


@dataclass(frozen=True)
class _Checks:
    """Rules that hold for every event; `places` of the events within `rows`."""

    rows: EventRows
    places: Sequence[int]

    def require(self, marks: list[bool] | npt.NDArray[np.bool_], field: str, rule: str) -> None:
        """Raise InvalidEvents for the events that are not marked."""
        if all(marks):
            return
        wrong = np.flatnonzero(~np.asarray(marks, np.bool_))
        first = [self.places[int(i)] for i in wrong[: InvalidEvents.shown]]
        lines, start = self.rows.lines, self.rows.start
        problems = [RowProblem(start + at, field, rule, None if lines is None else lines[at]) for at in first]
        raise InvalidEvents(problems, len(wrong))


def _stored(events: list[dict[str, Any]], data_set: DataSet, keys: EventKeys, checks: _Checks) -> Events:
    stored = np.zeros(len(events), EVENT)
    stored["time"] = _times([event.get("timestamp") for event in events], checks)
    types = _types(events, checks)
    names = sorted(set(types))
    digests = dict(zip(names, siphash128(_texts(names), keys.type)[0].tolist(), strict=True))
    stored["type"] = np.array([digests[name] for name in types], np.uint64)
    _set_values(stored, events, types, data_set, checks)
    low, high = _event_digests([event.get("id") for event in events], keys.event, checks)
    stored["event_low"], stored["event_high"] = low, high
    user = [event.get("user_data") for event in events]
    checks.require([data is None or type(data) is dict for data in user], "user_data", OBJECT)
    flags = [None if data is None else data.get("mmt_only") for data in user]
    checks.require([flag is None or type(flag) is bool for flag in flags], "user_data.mmt_only", BOOLEAN)
    bits = {None: 0, False: HAS_MMT, True: HAS_MMT | MMT_ONLY}
    stored["flags"] |= np.array([bits[flag] for flag in flags], np.uint32)
    _set_examples(stored, [_member(event, data_set.example_path) for event in events], data_set, keys.example, checks)
    return stored


def _times(values: list[Any], checks: _Checks) -> npt.NDArray[np.int64]:
    checks.require([type(value) is int and 0 <= value <= LATEST for value in values], "timestamp", SECONDS)
    return np.array(values, np.int64)


def _types(events: list[dict[str, Any]], checks: _Checks) -> list[str]:
    types: list[Any] = [event.get("event_type") for event in events]
    checks.require([type(name) is str and 0 < len(name) <= LONGEST_NAME for name in types], "event_type", TEXT)
    if CUSTOM not in types:
        return types
    custom = [event.get("custom_event") if name == CUSTOM else "" for event, name in zip(events, types, strict=True)]
    fit = [
        name != CUSTOM or (type(own) is str and 0 < len(own) <= LONGEST_NAME)
        for own, name in zip(custom, types, strict=True)
    ]
    checks.require(fit, "custom_event", CUSTOM_NAME)
    return [CUSTOM_PREFIX + str(own) if name == CUSTOM else name for own, name in zip(custom, types, strict=True)]


def _set_values(
    stored: Events, events: list[dict[str, Any]], types: list[str], data_set: DataSet, checks: _Checks
) -> None:
    """Set amount and currency of the events that have a value."""
    values = [event.get("value") for event in events]
    fit = [value is None or (type(value) in (int, float) and abs(value) < MOST_VALUE) for value in values]
    checks.require(fit, "value", VALUE)
    has_value = np.array([value is not None for value in values], np.bool_)
    codes: list[Any] = [event.get("currency_code") for event in events]
    spelled = [type(code) is str and _CODE.fullmatch(code) is not None for code in codes]
    checks.require([fits or not has for fits, has in zip(spelled, has_value, strict=True)], "currency_code", CURRENCY)
    upper = [code.upper() if fits else "" for code, fits in zip(codes, spelled, strict=True)]
    if data_set.currencies:
        takes = data_set.currencies
        same = [
            not has or takes.get(kind, code) == code for kind, code, has in zip(types, upper, has_value, strict=True)
        ]
        checks.require(same, "currency_code", OTHER_CURRENCY)
    numbers = {code: currency_number(code) for code in set(upper)}
    stored["amount"] = np.rint(np.array([value or 0 for value in values], np.float64) * MICRO).astype(np.int64)
    stored["currency"] = np.array([numbers[code] for code in upper], np.uint32)
    stored["flags"] |= np.where(has_value, np.uint32(HAS_VALUE), np.uint32(0))


def _event_digests(ids: list[Any], key: bytes, checks: _Checks) -> tuple[U64, U64]:
    """Return the digests of event ids; an event without one gets a random digest, and so is its own."""
    texts = [str(name) if type(name) is int else name for name in ids]
    fit = [name is None or (type(name) is str and 0 < len(name.encode()) <= LONGEST_ID) for name in texts]
    checks.require(fit, "id", NO_ID)
    low, high = siphash128(_texts([name or "" for name in texts]), key)
    own = np.flatnonzero([name is None for name in texts])
    if len(own):
        random = np.frombuffer(secrets.token_bytes(16 * len(own)), np.uint64)
        low[own], high[own] = random[: len(own)], random[len(own) :]
    return low, high


def _set_examples(stored: Events, ids: list[Any], data_set: DataSet, key: bytes, checks: _Checks) -> None:
    """Set the digest of the example id of the events that have one."""
    field = ".".join(data_set.example_path)
    checks.require([name is None or type(name) in (str, int) for name in ids], field, "must be text or a whole number")
    places = [place for place, name in enumerate(ids) if name is not None]
    if not places:
        return
    try:
        named = canonical_column(_texts([str(ids[place]) for place in places]), field)
    except InvalidRows as fault:
        wrong = np.ones(len(ids), np.bool_)
        wrong[[places[problem.row] for problem in fault.problems]] = False
        checks.require(wrong, field, fault.problems[0].rule)
        raise
    rows = np.array(places)
    stored["example_low"][rows], stored["example_high"][rows] = siphash128(named, key)
    stored["flags"][rows] |= np.uint32(HAS_EXAMPLE)


def _member(event: dict[str, Any], path: tuple[str, ...]) -> Any:
    member: Any = event
    for name in path:
        if type(member) is not dict:
            return None
        member = member.get(name)
    return member


def _texts(texts: list[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(texts, pa.string())
