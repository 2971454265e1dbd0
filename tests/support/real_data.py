"""The evaluation data of the project where it lies beside the checkout, small generated stand-ins elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DATA = Path(__file__).parents[3] / "shared" / "data"
ID = "row_id"
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Task:
    """Labels and features of one task, split 80/20 at random; a stand-in (`real` False) only tests the path."""

    name: str
    label: str
    domain: str
    loss: str
    real: bool
    train: pa.Table
    test: pa.Table

    @property
    def truth(self) -> npt.NDArray[np.float64]:
        """float64[n]: labels of the training rows, clipped to the domain, as the mechanism sees them."""
        low, high = (float(end) for end in self.domain.split(":")[:2])
        return np.clip(np.floor(self.train[self.label].to_numpy().astype(np.float64)), low, high)

    def labels(self) -> pa.Table:
        return self.train.select([ID, self.label])

    def features(self) -> pa.Table:
        return self.train.drop_columns([self.label])

    def source(self) -> str:
        return "real data" if self.real else "a generated stand-in, because ../shared/data is not there"


def _task(name: str, label: str, domain: str, loss: str, table: pa.Table, real: bool, seed: int) -> Task:
    held_out = pa.array(np.random.default_rng(seed).random(table.num_rows) < TEST_SHARE)
    return Task(name, label, domain, loss, real, table.filter(pc.invert(held_out)), table.filter(held_out))


def _read(file: str, drop: tuple[str, ...]) -> pa.Table | None:
    path = DATA / file
    if not path.exists():
        return None
    return pq.read_table(path).drop_columns(list(drop))


def census(seed: int = 0) -> Task:
    """Weeks worked, rows with at least one, 1 … 52; every column but the survey weight is a feature."""
    table = _read("census_income_kdd.parquet", ("instance_weight",))
    real = table is not None
    if table is None:
        table = _stand_in(
            6000, lambda rng, x: np.where(rng.random(6000) < 0.35 + 0.5 * x, 52, rng.integers(1, 52, 6000))
        )
        table = table.rename_columns([ID, "age", "group", "weeks_worked_in_year"])
    table = table.filter(pc.greater_equal(table["weeks_worked_in_year"], 1))
    return _task("census", "weeks_worked_in_year", "1:52", "squared", table, real, seed)


def retail(seed: int = 0) -> Task:
    """Sales amount of an invoice line, clipped at 60 pounds; `quantity` would give it away and is left out."""
    table = _read("online_retail_lines.parquet", ("quantity", "description", "invoice_no"))
    real = table is not None
    if table is None:
        table = _stand_in(6000, lambda rng, x: rng.lognormal(1.5 + 1.5 * x, 0.8, 6000))
        table = table.rename_columns([ID, "unit_price_gbp", "country", "sales_amount_gbp"])
    else:
        time = table["invoice_time"]
        table = table.append_column("hour", pc.hour(time)).append_column("weekday", pc.day_of_week(time))
        table = table.drop_columns(["invoice_time"])
        customer = pc.cast(table["customer_id"], pa.string())
        table = table.set_column(table.column_names.index("customer_id"), "customer_id", customer)
    return _task("retail", "sales_amount_gbp", "0:60", "squared", table, real, seed)


def bike(seed: int = 0) -> Task:
    """Rentals in the hour, 0 … 600, Poisson log loss; `casual` and `registered` add up to it and are left out."""
    table = _read("bike_sharing_hourly.parquet", ("casual", "registered", "dteday"))
    real = table is not None
    if table is None:
        table = _stand_in(4000, lambda rng, x: rng.poisson(40 + 300 * x, 4000))
        table = table.rename_columns([ID, "temp", "season", "cnt"])
    return _task("bike", "cnt", "0:600", "poisson", table, real, seed)


def claims(seed: int = 0) -> Task:
    """Claims during the exposure of a motor policy, clipped at 4, Poisson log loss; 96 % are 0."""
    table = _read("fremtpl2_claim_counts.parquet", ("IDpol",))
    real = table is not None
    if table is None:
        table = _stand_in(6000, lambda rng, x: rng.poisson(0.1 + 0.4 * x, 6000))
        table = table.rename_columns([ID, "Exposure", "Area", "ClaimNb"])
    return _task("claims", "ClaimNb", "0:4", "poisson", table, real, seed)


def _stand_in(n: int, label: Any) -> pa.Table:
    rng = np.random.default_rng(20)
    x = rng.random(n)
    groups = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    y = np.asarray(label(rng, x), dtype=np.float64)
    return pa.table({"id": np.arange(n), "x": x, "group": groups, "y": y})
