"""Bodies of events: one core event object, an array of them, or one a line. Only what a rule can need is read, and
stored as keyed digests, a time and an exact amount, of one width whatever is in them. Tables keep the same rules."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from label_dp.errors import InvalidEvents, InvalidRows, RowProblem, TooLarge
from label_dp.schemas.events import CUSTOM, CUSTOM_PREFIX, LONGEST_NAME, DataSet
from labels_party.labels.chunks import CHUNK_ROWS
from labels_party.labels.digests import U64, EventKeys, siphash128
from labels_party.labels.formats.records import NOT_JSON
from labels_party.labels.formats.source import BLOCK
from labels_party.labels.parsing import LATEST, SECONDS, canonical_column

if TYPE_CHECKING:
    import pyarrow as pa

EVENT = np.dtype(
    [
        ("event_low", "<u8"),
        ("event_high", "<u8"),
        ("example_low", "<u8"),
        ("example_high", "<u8"),
        ("time", "<i8"),  # Unix seconds
        ("type", "<u8"),  # keyed digest of its name: which types count is a matter of each population
        ("amount", "<i8"),  # of the value, in MICRO
        ("currency", "<u4"),  # three letters
        ("flags", "<u4"),
    ]
)
Events = npt.NDArray[np.void]
MICRO = 1_000_000  # amounts are whole millionths: sums are exact, in any order
HAS_EXAMPLE, HAS_VALUE, HAS_MMT, MMT_ONLY = 1, 2, 4, 8

MOST_DOCUMENT = 4 * BLOCK  # bytes of an object or array, read as a whole, which takes up to 64 times as much memory
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
EXAMPLE_ID = "must be text or a whole number"
NO_ID = "must be text of 1 to 1,024 bytes, a whole number, or absent"
LONGEST_ID = 1024
_CODE = re.compile("[A-Za-z]{3}")

Members = Callable[..., list[Any]]  # by the names of a path: that member of each event, None where it is absent
Digests = Callable[[Sequence[int]], tuple[U64, U64]]  # of the events in these rows


@dataclass(frozen=True)
class EventRows:
    """Some events of a body: the numbers of their rows, their members `of` a path, and the lines they stand on."""

    numbers: Sequence[int]
    of: Members
    lines: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, places: Sequence[int]) -> EventRows:
        """Select events by their places."""

        def of(*path: str) -> list[Any]:
            values = self.of(*path)
            return [values[place] for place in places]

        lines = None if self.lines is None else [self.lines[place] for place in places]
        return EventRows([self.numbers[place] for place in places], of, lines)

    def require(self, marks: list[bool] | npt.NDArray[np.bool_], field: str, rule: str) -> None:
        """Raise InvalidEvents for the events that are not marked."""
        if all(marks):
            return
        wrong = np.flatnonzero(~np.asarray(marks, np.bool_))
        problems = [
            RowProblem(self.numbers[at], field, rule, None if self.lines is None else self.lines[at])
            for at in wrong[: InvalidEvents.shown].tolist()
        ]
        raise InvalidEvents(problems, len(wrong))


def one_body(parts: Sequence[EventRows]) -> EventRows:
    """Return events of several bodies as those of one."""

    def of(*path: str) -> list[Any]:
        return [value for rows in parts for value in rows.of(*path)]

    return EventRows(range(sum(map(len, parts))), of)


def event_rows(read: Callable[[], bytes], *, lines: bool) -> Iterator[EventRows]:
    """Yield the events of a body, some at a time; `read` returns the next bytes. Raises InvalidEvents, TooLarge."""
    yield from _lines(read) if lines else _document(read)


def _document(read: Callable[[], bytes]) -> Iterator[EventRows]:
    text = bytearray()
    while more := read():
        text += more
        if len(text) > MOST_DOCUMENT:
            raise TooLarge(
                f"A JSON document of events has at most {MOST_DOCUMENT >> 20} MiB. Write more as NDJSON "
                "(application/x-ndjson), one event a line, which is read piece by piece."
            )
    try:
        body = orjson.loads(bytes(text).removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        raise InvalidEvents([RowProblem(0, EVENT_ROW, NOT_JSON)]) from None
    events = body if isinstance(body, list) else [body]
    for start in range(0, len(events), CHUNK_ROWS):
        yield event_objects(start, events[start : start + CHUNK_ROWS])


def _lines(read: Callable[[], bytes]) -> Iterator[EventRows]:
    rest, line, start = b"", 1, 0
    while True:
        more = read()
        rest += more
        end = rest.rfind(b"\n") + 1 if more else len(rest)
        if len(rest) - end > MOST_LINE:
            raise InvalidEvents([RowProblem(start, EVENT_ROW, f"has at most {MOST_LINE:,} bytes", line)], 1)
        texts = rest[:end].split(b"\n")
        numbers = [line + i for i, text in enumerate(texts) if text.strip()]
        for first in range(0, len(numbers), CHUNK_ROWS):
            part = numbers[first : first + CHUNK_ROWS]
            yield event_objects(start, [_loaded(texts[n - line], start + i, n) for i, n in enumerate(part)], part)
            start += len(part)
        line, rest = line + len(texts) - 1, rest[end:]
        if not more:
            return


def event_objects(start: int, events: list[Any], lines: Sequence[int] | None = None) -> EventRows:
    """Return parsed JSON from row `start` on as events. Raises InvalidEvents if one is no object, or its user_data."""

    def of(*path: str) -> list[Any]:
        values = events
        for name in path:
            values = [value.get(name) if type(value) is dict else None for value in values]
        return values

    rows = EventRows(range(start, start + len(events)), of, lines)
    rows.require([type(event) is dict for event in events], EVENT_ROW, OBJECT)
    rows.require([data is None or type(data) is dict for data in of("user_data")], "user_data", OBJECT)
    return rows


def _loaded(text: bytes, row: int, line: int) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidEvents([RowProblem(row, EVENT_ROW, NOT_JSON, line)], 1) from None


# --- what a rule can need of an event -----------------------------------------------------------------------


def currency_number(code: str) -> int:
    """Return three letters as one number."""
    return int.from_bytes(code.encode("ascii"), "big")


def has(events: Events, flag: int) -> npt.NDArray[np.bool_]:
    """Mark bool[n] of events with a flag."""
    marks: Any = events["flags"] & np.uint32(flag)
    return np.asarray(marks != 0)


def random_digests(rows: Sequence[int]) -> tuple[U64, U64]:
    """Return a digest of its own for each event without an id."""
    random = np.frombuffer(secrets.token_bytes(16 * len(rows)), np.uint64)
    return random[: len(rows)], random[len(rows) :]


def stored_events(
    rows: EventRows, sets: Mapping[str, DataSet], keys: Mapping[str, EventKeys], without_id: Digests = random_digests
) -> dict[str, Events]:
    """Return the events by data set, as they are stored. Raises InvalidEvents: rows and rules, never a value."""
    names = rows.of("data_set_id")
    rows.require([type(name) is str and name in sets for name in names], "data_set_id", NO_DATA_SET)
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return {
        name: _stored(rows if len(places) == 1 else rows.only(of_set), sets[name], keys[name], without_id)
        for name, of_set in places.items()
    }


def _stored(rows: EventRows, data_set: DataSet, keys: EventKeys, without_id: Digests) -> Events:
    stored = np.zeros(len(rows), EVENT)
    stored["time"] = _times(rows)
    types = _types(rows)
    names = sorted(set(types))
    digests = dict(zip(names, siphash128(_texts(names), keys.type)[0].tolist(), strict=True))
    stored["type"] = np.array([digests[name] for name in types], np.uint64)
    _set_values(stored, rows, types, data_set)
    low, high = _event_digests(rows, keys.event, without_id)
    stored["event_low"], stored["event_high"] = low, high
    flags = rows.of("user_data", "mmt_only")
    rows.require([flag is None or type(flag) is bool for flag in flags], "user_data.mmt_only", BOOLEAN)
    bits = {None: 0, False: HAS_MMT, True: HAS_MMT | MMT_ONLY}
    stored["flags"] |= np.array([bits[flag] for flag in flags], np.uint32)
    _set_examples(stored, rows, data_set, keys.example)
    return stored


def _times(rows: EventRows) -> npt.NDArray[np.int64]:
    values = rows.of("timestamp")
    rows.require([type(value) is int and 0 <= value <= LATEST for value in values], "timestamp", SECONDS)
    return np.array(values, np.int64)


def _types(rows: EventRows) -> list[str]:
    types = rows.of("event_type")
    rows.require([type(name) is str and 0 < len(name) <= LONGEST_NAME for name in types], "event_type", TEXT)
    if CUSTOM not in types:
        return types
    custom = rows.of("custom_event")
    fit = [
        name != CUSTOM or (type(own) is str and 0 < len(own) <= LONGEST_NAME)
        for own, name in zip(custom, types, strict=True)
    ]
    rows.require(fit, "custom_event", CUSTOM_NAME)
    return [CUSTOM_PREFIX + str(own) if name == CUSTOM else name for own, name in zip(custom, types, strict=True)]


def _set_values(stored: Events, rows: EventRows, types: list[str], data_set: DataSet) -> None:
    """Set amount and currency of the events that have a value."""
    values = rows.of("value")
    fit = [value is None or (type(value) in (int, float) and abs(value) < MOST_VALUE) for value in values]
    rows.require(fit, "value", VALUE)
    has_value = np.array([value is not None for value in values], np.bool_)
    codes = rows.of("currency_code")
    spelled = [type(code) is str and _CODE.fullmatch(code) is not None for code in codes]
    rows.require([fits or not has for fits, has in zip(spelled, has_value, strict=True)], "currency_code", CURRENCY)
    upper = [code.upper() if fits else "" for code, fits in zip(codes, spelled, strict=True)]
    if data_set.currencies:
        takes = data_set.currencies
        same = [
            not has or takes.get(kind, code) == code for kind, code, has in zip(types, upper, has_value, strict=True)
        ]
        rows.require(same, "currency_code", OTHER_CURRENCY)
    numbers = {code: currency_number(code) for code in set(upper)}
    stored["amount"] = np.rint(np.array([value or 0 for value in values], np.float64) * MICRO).astype(np.int64)
    stored["currency"] = np.array([numbers[code] for code in upper], np.uint32)
    stored["flags"] |= np.where(has_value, np.uint32(HAS_VALUE), np.uint32(0))


def _event_digests(rows: EventRows, key: bytes, without_id: Digests) -> tuple[U64, U64]:
    """Return the digests of event ids; an event without one gets a digest of its own."""
    texts = [str(name) if type(name) is int else name for name in rows.of("id")]
    fit = [name is None or (type(name) is str and 0 < len(name.encode()) <= LONGEST_ID) for name in texts]
    rows.require(fit, "id", NO_ID)
    low, high = siphash128(_texts([name or "" for name in texts]), key)
    own = [place for place, name in enumerate(texts) if name is None]
    if own:
        low[own], high[own] = without_id([rows.numbers[place] for place in own])
    return low, high


def _set_examples(stored: Events, rows: EventRows, data_set: DataSet, key: bytes) -> None:
    """Set the digest of the example id of the events that have one."""
    ids = rows.of(*data_set.example_path)
    field = ".".join(data_set.example_path)
    rows.require([name is None or type(name) in (str, int) for name in ids], field, EXAMPLE_ID)
    places = [place for place, name in enumerate(ids) if name is not None]
    if not places:
        return
    try:
        named = canonical_column(_texts([str(ids[place]) for place in places]), field)
    except InvalidRows as fault:
        wrong = np.ones(len(ids), np.bool_)
        wrong[[places[problem.row] for problem in fault.problems]] = False
        rows.require(wrong, field, fault.problems[0].rule)
        raise
    at = np.array(places)
    stored["example_low"][at], stored["example_high"][at] = siphash128(named, key)
    stored["flags"][at] |= np.uint32(HAS_EXAMPLE)


def _texts(texts: list[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(texts, pa.string())
