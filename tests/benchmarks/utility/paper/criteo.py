"""Criteo Sponsored Search Conversion Log (Tallis & Yadav 2018): one tab-separated file without a header.

The paper's preprocessing (its section 4.1 and appendix E.1): clicks that led to a sale, the amount clipped to 0 … 400
euro and rounded down, three numbers and seventeen categories of hashed values. -1 stands for a missing value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from label_dp.errors import InvalidFile
from tests.benchmarks.utility.paper.source import Source, opened, refuse_value

SALE, AMOUNT = "Sale", "SalesAmountInEuro"
NUMBERS = ("Time_delay_for_conversion", "nb_clicks_1week", "product_price")
CATEGORIES = (
    "product_age_group",
    "device_type",
    "audience_id",
    "product_gender",
    "product_brand",
    *(f"product_category_{level}" for level in range(1, 8)),
    "product_country",
    "product_id",
    "product_title",
    "partner_id",
    "user_id",
)
COLUMNS = (SALE, AMOUNT, NUMBERS[0], "click_timestamp", *NUMBERS[1:], *CATEGORIES)
MISSING = ["", "-1", "-1.0"]
TOP = 400
BLOCK = 1 << 24  # bytes


def load_criteo(path: Path | str, limit: int | None = None) -> Source:
    """All sales of the file, or its first `limit`. Blocks are read one at a time and other clicks dropped from each.

    Raises InvalidFile: unreadable, a row that has not 23 columns, a number that is none, no sale at all.
    """
    path = Path(path)
    batches: list[pa.RecordBatch] = []
    kept = 0
    for block in _blocks(path):
        sold = pc.and_(pc.equal(block[SALE], 1), pc.is_valid(block[AMOUNT]))
        sales = block.filter(pc.fill_null(sold, False)).drop_columns([SALE])
        batches.append(_encoded(sales))
        kept += sales.num_rows
        if limit is not None and kept >= limit:
            break
    table = pa.Table.from_batches(batches) if batches else None
    if table is None or table.num_rows == 0:
        raise InvalidFile(f"'{path}' has no row with a sale ({SALE} 1 in its first column).")
    table = table.slice(0, limit).unify_dictionaries().combine_chunks()
    amounts = table[AMOUNT].to_numpy()
    if not np.all(np.isfinite(amounts)):
        raise InvalidFile(f"'{path}': the {AMOUNT} of a row with a sale is not a finite number.")
    return Source(
        name="criteo",
        label=AMOUNT,
        domain=f"0:{TOP}",
        loss="squared",
        features=table.drop_columns([AMOUNT]),
        labels=np.clip(np.floor(amounts), 0, TOP).astype(np.int64),
        categorical=CATEGORIES,
        network={"epochs": 50, "batch_size": 8192},
    )


def _blocks(path: Path) -> Any:
    wrong: list[csv.InvalidRow] = []

    def invalid(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    wanted = [name for name in COLUMNS if name != "click_timestamp"]
    types = {SALE: pa.int8(), AMOUNT: pa.float64()} | dict.fromkeys(NUMBERS, pa.float32())
    types |= dict.fromkeys(CATEGORIES, pa.string())
    with opened(path) as stream:
        try:
            # one thread: with more pyarrow does not know the number of a row
            yield from csv.open_csv(
                stream,
                csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=list(COLUMNS)),
                csv.ParseOptions(delimiter="\t", quote_char=False, invalid_row_handler=invalid),
                csv.ConvertOptions(
                    column_types=types, include_columns=wanted, null_values=MISSING, strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid as error:
            if wrong:
                raise InvalidFile(
                    f"'{path}': row {wrong[0].number} has {wrong[0].actual_columns} columns instead of {len(COLUMNS)}, "
                    "separated by tabs; is this the Criteo Sponsored Search Conversion Log?"
                ) from None
            refuse_value(path, error, list(COLUMNS))


def _encoded(sales: pa.RecordBatch) -> pa.RecordBatch:
    """Hashed values as dictionary entries: a sixth of the memory."""
    arrays = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in sales.columns]
    return pa.RecordBatch.from_arrays(arrays, names=sales.schema.names)
