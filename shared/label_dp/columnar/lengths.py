"""Lengths of the texts of a Parquet page whose header does not bound them: dictionaries and delta encodings."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from label_dp.columnar.thrift import LyingFile

NO_CODEC, HADOOP_LZ4 = 0, 5
CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
MOST_BLOCK = 1 << 16  # values of a block of differences; writers use 128
MINI = 32  # the size of a miniblock is a multiple of this
UNREADABLE = "a page is damaged, or compressed in a way that is not read"


def unpacked(raw: bytes, codec: int, plain: int) -> bytes:
    """Decompress `raw` to exactly `plain` bytes. Raises LyingFile."""
    import pyarrow as pa

    if codec == NO_CODEC:
        data = raw
    elif codec == HADOOP_LZ4:
        data = _hadoop(raw, plain)
    elif codec in CODECS:
        try:
            data = pa.Codec(CODECS[codec]).decompress(raw, plain, asbytes=True) if plain else b""
        except (pa.ArrowException, OSError, ValueError):
            raise LyingFile(UNREADABLE) from None
    else:
        raise LyingFile(UNREADABLE)
    if len(data) != plain:
        raise LyingFile(UNREADABLE)
    return data


def _hadoop(raw: bytes, plain: int) -> bytes:
    """Decompress LZ4 with Hadoop's two sizes before each block, or without them."""
    parts, at, remaining = [], 0, plain
    while len(raw) - at >= 8:
        whole, packed = struct.unpack_from(">II", raw, at)
        if not 0 < whole <= remaining or packed > len(raw) - at - 8:
            return unpacked(raw, 7, plain)
        parts.append(unpacked(raw[at + 8 : at + 8 + packed], 7, whole))
        at, remaining = at + 8 + packed, remaining - whole
    return b"".join(parts)


def longest_in_dictionary(content: bytes, values: int) -> int:
    """Return the bytes of the longest of `values` texts, each with its length in front. Raises LyingFile."""
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
    """Return the bytes of the longest text of a page of at most `values`, encoded by lengths, or by shared prefixes and
    lengths. Raises LyingFile, also if there are more lengths than values."""
    longest, at = 0, 0
    for _ in range(2 if prefixes else 1):
        numbers, at = delta_packed(content, at, values)
        if numbers.size and int(numbers.min()) < 0:
            raise LyingFile
        longest += int(numbers.max(initial=0))
    return longest


def check_delta(content: bytes, values: int) -> None:
    """Check that a delta page of whole numbers claims no more than it has. Raises LyingFile."""
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
    """Decode at most `most` delta-packed whole numbers from `at` on; returns them and their end. Raises LyingFile."""
    block, parts, total, first, at = _head(content, at, most)
    if not total:
        return np.zeros(0, np.int64), at
    mini, steps, remaining = block // parts, list[npt.NDArray[np.int64]](), total - 1
    while remaining > 0:
        least, at = _varint(content, at)
        least = (least >> 1) ^ -(least & 1)
        widths = content[at : at + parts]
        at += parts
        if len(widths) < parts:
            raise LyingFile
        for width in widths:
            if remaining <= 0:
                break
            size = width * mini // 8
            if width > 32 or at + size > len(content) or abs(least) > 1 << 32:
                raise LyingFile
            bits = np.unpackbits(np.frombuffer(content, np.uint8, size, at), bitorder="little").astype(np.int64)
            step = bits.reshape(mini, width) @ (np.int64(1) << np.arange(width, dtype=np.int64)) if width else 0
            steps.append((np.zeros(mini, np.int64) + step + least)[:remaining])
            at, remaining = at + size, remaining - mini
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
