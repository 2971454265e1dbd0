"""Thrift's compact protocol, read into a tree, changed, and written again: for Parquet files that lie.

A struct is a dict {field id: (type, value)}, a list is (element type, values). Nothing is checked: that is the point.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Struct = dict[int, tuple[int, Any]]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


class Reading:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise IndexError("the data ends")
        self.at += count
        return self.data[self.at - count : self.at]

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self.take(1)
        if kind in (I16, I32, I64):
            return self.number()
        if kind == DOUBLE:
            return self.take(8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (LIST, SET):
            head = self.take(1)[0]
            count = head >> 4 if head >> 4 < 15 else self.varint()
            inner = head & 15
            return inner, [self.take(1) if inner in (TRUE, FALSE) else self.value(inner) for _ in range(count)]
        return self.struct()

    def struct(self) -> Struct:
        found: Struct = {}
        field = 0
        while head := self.take(1)[0]:
            field = field + (head >> 4) if head >> 4 else self.number()
            found[field] = (head & 15, self.value(head & 15))
        return found


def write_value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind in (I16, I32, I64):
        return zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind in (LIST, SET):
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + varint(len(items))
        raw = inner in (TRUE, FALSE)
        return head + b"".join(item if raw else write_value(inner, item) for item in items)
    return write_struct(value) if isinstance(value, dict) else bytes(value)


def write_struct(struct: Struct) -> bytes:
    out, last = [], 0
    for field, (kind, value) in struct.items():
        kind = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        step = field - last
        out.append(bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + zigzag(field))
        out.append(write_value(kind, value))
        last = field
    return b"".join(out) + b"\0"
