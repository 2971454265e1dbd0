"""Lengths of the texts of a Parquet page, if its header does not tell: dictionaries and differences."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from label_dp.columnar.thrift import LyingFile

NO_CODEC, HADOOP_LZ4 = 0, 5
CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
MOST_BLOCK = 1 << 16  # values of a block of differences; writers have 128
MINI = 32  # a part of a block has a multiple of so many
UNREADABLE = "a page is damaged, or compressed in a way that is not read"


def unpacked(raw: bytes, codec: int, plain: int) -> bytes:
    """`raw` decompressed to exactly `plain` bytes. Raises LyingFile."""
    import pyarrow as pa

    if codec == NO_CODEC:
        found = raw
    elif codec == HADOOP_LZ4:
        found = _hadoop(raw, plain)
    elif codec in CODECS:
        try:
            found = pa.Codec(CODECS[codec]).decompress(raw, plain, asbytes=True) if plain else b""
        except (pa.ArrowException, OSError, ValueError):
            raise LyingFile(UNREADABLE) from None
    else:
        raise LyingFile(UNREADABLE)
    if len(found) != plain:
        raise LyingFile(UNREADABLE)
    return found


def _hadoop(raw: bytes, plain: int) -> bytes:
    """LZ4 with the two sizes that Hadoop writes before each block, or without any."""
    parts, at, left = [], 0, plain
    while len(raw) - at >= 8:
        whole, packed = struct.unpack_from(">II", raw, at)
        if not 0 < whole <= left or packed > len(raw) - at - 8:
            return unpacked(raw, 7, plain)
        parts.append(unpacked(raw[at + 8 : at + 8 + packed], 7, whole))
        at, left = at + 8 + packed, left - whole
    return b"".join(parts)


def longest_in_dictionary(content: bytes, values: int) -> int:
    """Bytes of the longest of `values` texts, each behind its length. Raises LyingFile."""
    at = longest = 0
    read = struct.Struct("<I").unpack_from
    try:
        for _ in range(values):
            (length,) = read(content, at)
            at += 4 + length
            if length > longest:
                longest = length
    except struct.error:
        raise LyingFile from None
    if at > len(content):
        raise LyingFile
    return longest


def longest_of_delta(content: bytes, values: int, *, prefixes: bool) -> int:
    """Bytes of the longest text of a page of at most `values`, made of lengths or of shared beginnings and lengths.

    Raises LyingFile, also where the lengths say that they are more than the page has values.
    """
    longest, at = 0, 0
    for _ in range(2 if prefixes else 1):
        found, at = delta_packed(content, at, values)
        if found.size and int(found.min()) < 0:
            raise LyingFile
        longest += int(found.max(initial=0))
    return longest


def check_delta(content: bytes, values: int) -> None:
    """Whether a page of whole numbers as differences says what it has. Raises LyingFile."""
    if content:
        _head(content, 0, values)


def _head(content: bytes, at: int, most: int) -> tuple[int, int, int, int, int]:
    block, at = _varint(content, at)
    parts, at = _varint(content, at)
    total, at = _varint(content, at)
    first, at = _varint(content, at)
    if not 0 < parts <= block <= MOST_BLOCK or block % parts or (block // parts) % MINI or total > most:
        raise LyingFile
    return block, parts, total, (first >> 1) ^ -(first & 1), at


def delta_packed(content: bytes, at: int, most: int) -> tuple[npt.NDArray[np.int64], int]:
    """(whole numbers written as packed differences from `at` on, where they end); at most `most`. Raises LyingFile."""
    block, parts, total, first, at = _head(content, at, most)
    if not total:
        return np.zeros(0, np.int64), at
    mini, steps, left = block // parts, list[npt.NDArray[np.int64]](), total - 1
    while left > 0:
        least, at = _varint(content, at)
        least = (least >> 1) ^ -(least & 1)
        widths = content[at : at + parts]
        at += parts
        if len(widths) < parts:
            raise LyingFile
        for width in widths:
            if left <= 0:
                break
            size = width * mini // 8
            if width > 32 or at + size > len(content) or abs(least) > 1 << 32:
                raise LyingFile
            bits = np.unpackbits(np.frombuffer(content, np.uint8, size, at), bitorder="little").astype(np.int64)
            step = bits.reshape(mini, width) @ (np.int64(1) << np.arange(width, dtype=np.int64)) if width else 0
            steps.append((np.zeros(mini, np.int64) + step + least)[:left])
            at, left = at + size, left - mini
    return np.cumsum(np.concatenate([np.array([first], np.int64), *steps])), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(content):
            raise LyingFile
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise LyingFile
