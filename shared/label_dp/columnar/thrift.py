"""Thrift's compact protocol, as in Parquet's footers and page headers, read without trust.

Strict, so that no two readers can understand the same bytes differently: fields rise, none is repeated, and lists have
the expected type. Only requested fields are allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
MOST_DEPTH = 10
Fields = dict[int, tuple[int, int | None]]
Shape = Mapping[int, tuple[int, "Shape"]]
ANY: Shape = {}


class LyingFile(ValueError):
    """Raised if a file claims more than its signed manifest allows, or is not as this project writes Parquet. Its text
    is part of a sentence, without a full stop."""

    def __init__(self, text: str = "it is damaged, or of another kind than this project writes") -> None:
        super().__init__(text)


class FineParts(LyingFile):
    """Raised for a file, perhaps sound, in more parts than are checked."""

    def __init__(self) -> None:
        super().__init__("it has more row groups or pages than a file of its size; write it with fewer, larger ones")


def number(fields: Fields, field: int, kind: int = I32) -> int:
    """Return a required number of this type and in its range. Raises LyingFile."""
    stated_kind, value = fields.get(field, (0, None))
    most = 1 << (31 if kind == I32 else 63)
    if stated_kind != kind or value is None or not -most <= value < most:  # a decoder would truncate larger ones
        raise LyingFile
    return value


Each = Callable[["Cursor"], object]
NOTHING: Mapping[int, Each] = {}


class Cursor:
    """Cursor over bytes; `at` is the next one. `loose` allows lists unknown to the shape, as of other writers."""

    def __init__(self, data: bytes, *, loose: bool = False) -> None:
        self.data, self.at, self.loose = data, 0, loose
        self.inside: dict[int, Fields] = {}

    def fields(
        self, shape: Shape, depth: int = 0, inside: tuple[int, ...] = (), each: Mapping[int, Each] = NOTHING
    ) -> Fields:
        """Read a struct as {field: (type, number, or length of a list)}. Structs named `inside` are stored there too;
        elements of lists in `each` are read by its function."""
        result: Fields = {}
        last = 0
        while head := self._byte():
            field = last + (head >> 4) if head >> 4 else self._zigzag()
            if not last < field < 1 << 15 or depth > MOST_DEPTH:
                raise LyingFile
            kind, last = head & 15, field
            if field in each and kind != LIST:
                raise LyingFile
            if kind == STRUCT:
                within = self.fields(shape.get(field, (STRUCT, ANY))[1], depth + 1)
                if field in inside:
                    self.inside[field] = within
                result[field] = (kind, None)
            elif kind == LIST:
                result[field] = (kind, self._list(shape.get(field), depth, each.get(field)))
            else:
                result[field] = (kind, self._scalar(kind))
        return result

    def _list(self, elements: tuple[int, Shape] | None, depth: int, read: Each | None) -> int:
        head = self._byte()
        count, kind = head >> 4 if head >> 4 < 15 else self._varint(), head & 15
        if elements is None and self.loose:
            elements = (kind, ANY)
        if elements is None or kind != elements[0] or count > len(self.data) - self.at:  # each takes a byte at least
            raise LyingFile
        for _ in range(count):
            if read is not None:
                read(self)
            elif kind == STRUCT:
                self.fields(elements[1], depth + 1)
            else:
                self._scalar(kind)
        return count

    def _scalar(self, kind: int) -> int | None:
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind in (BYTE, DOUBLE, BINARY):
            self._skip({BYTE: 1, DOUBLE: 8}.get(kind) or self._varint())
        elif kind not in (TRUE, FALSE):
            raise LyingFile  # sets, maps and unknown types
        return None

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise LyingFile
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise LyingFile

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise LyingFile
