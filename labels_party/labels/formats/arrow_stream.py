"""Arrow IPC streaming format, batch by batch."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from label_dp.columnar.budget import FREE, needs
from label_dp.columnar.rows import plain_bytes
from label_dp.errors import InvalidFile, TooLarge
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.columns import check_schema
from labels_party.labels.formats.source import WORKING, ColumnSelection, Exactly, Source, table_need


def read_arrow(source: Source, selection: ColumnSelection) -> Iterator[Chunk]:
    """Yield chunks of the rows. Raises InvalidFile, InvalidTable, TooLarge."""
    import pyarrow as pa

    guarded = GuardedStream(source)
    file = pa.PythonFile(guarded, mode="r")
    try:
        with pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            selection = selection.among(reader.schema.names)
            check_schema(reader.schema, selection)
            for record_batch in reader:
                batch = record_batch.select(list(selection.fields))
                batch.validate(full=True)
                if sum(plain_bytes(column) for column in batch.columns) > MOST_BODY:  # as text without dictionaries
                    raise TooLarge(LARGE)
                yield Chunk(pa.Table.from_batches([batch]), batch.num_rows)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError):
        raise InvalidFile(BAD) from None
    guarded.drain()


# Each message of an Arrow stream is checked before Arrow itself reads it: false lengths, and buffers that would
# decompress to any size, are refused before anything is allocated.
CONTINUES = b"\xff\xff\xff\xff"
MOST_METADATA = 1 << 20
MOST_BODY = 1 << 26  # of one message, as sent and as decompressed
MOST_ROWS = 1 << 22  # of one record batch
MOST_DICTIONARIES = 1 << 26  # of all dictionaries, which stay in memory
OFFSET = 8  # bytes of a row beside its text: a batch of empty ones has no body
DICTIONARY, RECORD_BATCH = 2, 3  # MessageHeader of Arrow's Message.fbs
BAD = "The upload is not a complete, well-formed Arrow stream (not the file format, and of version 0.15 or later)."
LARGE = (
    f"A record batch of the Arrow stream has more than {MOST_BODY >> 20} MiB or {MOST_ROWS:,} rows; "
    "write it in smaller batches, such as 65,536 rows."
)


class _Table:
    """Table of a flatbuffer (Google's format, used by Arrow's metadata), read field by field."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.fields = at - struct.unpack_from("<i", data, at)[0]
        self.size = struct.unpack_from("<H", data, self.fields)[0]

    def place(self, slot: int) -> int:
        """Return the position of the field; zero if it is absent."""
        entry = 4 + 2 * slot
        offset = struct.unpack_from("<H", self.data, self.fields + entry)[0] if entry + 2 <= self.size else 0
        return self.at + offset if offset else 0

    def number(self, slot: int, kind: str) -> int:
        place = self.place(slot)
        return int(struct.unpack_from("<" + kind, self.data, place)[0]) if place else 0

    def target(self, slot: int) -> int:
        """Return the position of the table or vector that the field points to; zero if there is none."""
        place = self.place(slot)
        return place + struct.unpack_from("<I", self.data, place)[0] if place else 0


class GuardedStream:
    """File of checked bytes for Arrow's reader; `read` raises InvalidFile, TooLarge."""

    def __init__(self, source: Source) -> None:
        self._source = Exactly(source)
        self._ready: deque[bytes] = deque()  # in Arrow's order: the part before a body, the body
        self._ended = False
        self._decoded_bytes = 0
        self._held: dict[int, int] = {}  # bytes of each dictionary
        self.closed = False

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (self._ready or not self._ended):
            if not self._ready:
                self._ready.extend(piece for piece in self._message() if piece)
                continue
            first = self._ready.popleft()
            if len(first) > size:
                self._ready.appendleft(first[size:])
                first = first[:size]
            parts.append(first)
            size -= len(first)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def flush(self) -> None:
        pass

    def drain(self) -> None:
        """Read to the end of the upload. Raises InvalidFile if anything follows the stream."""
        if not self._source.rest_is_empty():
            raise InvalidFile("Something follows the end of the Arrow stream.")

    def _message(self) -> tuple[bytes, bytes]:
        """Return the next message in two parts: up to its body, and the body."""
        prefix = self._source.read(8)
        if not prefix or prefix == CONTINUES + bytes(4):
            self._ended = True
            return prefix, b""
        size = int.from_bytes(prefix[4:], "little")
        if prefix[:4] != CONTINUES or len(prefix) < 8:
            raise InvalidFile(BAD)
        if size > MOST_METADATA:
            raise InvalidFile(f"A message of the Arrow stream has metadata of more than {MOST_METADATA >> 20} MiB.")
        metadata = self._source.read(size)
        try:
            message = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
            length, header = message.number(3, "q"), message.number(1, "B")
            if length < 0:
                raise InvalidFile(BAD)
            if length > MOST_BODY:
                raise TooLarge(LARGE)
            self._take(length)
            body = self._source.read(length)
            if len(metadata) < size or len(body) < length:
                raise InvalidFile(BAD)
            if header in (DICTIONARY, RECORD_BATCH):
                self._check(_Table(metadata, message.target(2)), header, body)
        except struct.error:
            raise InvalidFile(BAD) from None
        return prefix + metadata, body

    def _take(self, decoded: int) -> None:
        """Reserve memory for the next decoded bytes; all of a large upload's at once, since it waits only once."""
        self._decoded_bytes += decoded
        if table_need(self._decoded_bytes) > FREE:
            needs(WORKING)

    def _check(self, table: _Table, header: int, body: bytes) -> None:
        records = table if header == RECORD_BATCH else _Table(table.data, table.target(1))
        if records.number(0, "q") > MOST_ROWS:
            raise TooLarge(LARGE)
        decoded = self._decoded(records, body)
        self._take(max(decoded, OFFSET * records.number(0, "q")))
        if header == DICTIONARY:
            number, delta = table.number(0, "q"), table.number(2, "B")
            self._held[number] = decoded + (self._held.get(number, 0) if delta else 0)
            if sum(self._held.values()) > MOST_DICTIONARIES:
                raise TooLarge("The dictionaries of the Arrow stream are too large together; send ids as plain text.")

    @staticmethod
    def _decoded(records: _Table, body: bytes) -> int:
        """Sum the decompressed bytes of the buffers. Raises TooLarge."""
        vector = records.target(2)
        if not records.place(3) or not vector:
            return len(body)
        decoded = 0
        for i in range(struct.unpack_from("<I", records.data, vector)[0]):
            offset, length = struct.unpack_from("<qq", records.data, vector + 4 + 16 * i)
            if length > 0:
                decoded += max(struct.unpack_from("<q", body, offset)[0], length)
            if decoded > MOST_BODY or offset < 0:
                raise TooLarge(LARGE)
        return decoded
