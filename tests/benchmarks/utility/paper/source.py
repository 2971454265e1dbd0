"""What a loader hands over, and how reading errors become sentences without a value of the file in them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from label_dp.errors import InvalidFile


@dataclass(frozen=True)
class Source:
    """n examples: `features` without ids, `labels` whole numbers inside `domain`.

    `categorical` are the features that are categories whatever their type or number of values; `network` the paper's
    settings of its network for this data (epochs, batch_size), members of `mlp_fit.NetworkSettings`.
    """

    name: str
    label: str
    domain: str
    loss: str
    features: pa.Table
    labels: npt.NDArray[np.int64]
    categorical: tuple[str, ...]
    network: Mapping[str, Any]


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file as a stream, decompressed by the end of its name (.gz, .bz2, .zst). Raises InvalidFile."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None
    if empty:
        raise InvalidFile(f"'{path}' is empty.")
    try:
        with pa.input_stream(str(path), compression="detect") as stream, io.BufferedReader(stream) as lines:
            yield lines
    except OSError:
        raise InvalidFile(f"'{path}' cannot be read: it is damaged, or not compressed as its name says.") from None


def refuse_value(path: Path, error: pa.ArrowInvalid, names: list[str]) -> NoReturn:
    """Row and column of a value that pyarrow could not convert. Raises InvalidFile; pyarrow's own words quote it."""
    text = str(error)
    row, column = re.search(r"Row #(\d+)", text), re.search(r"column #(\d+)", text)
    at = f" of row {row[1]}" if row else ""
    if column:
        name = names[int(column[1])]
        raise InvalidFile(f"'{path}': the value of {name}{at} is not of the kind that this column holds.") from None
    raise InvalidFile(f"'{path}' is not the file that was expected{f': see row {row[1]}' if row else ''}.") from None
