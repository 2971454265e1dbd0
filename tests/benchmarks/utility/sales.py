"""Generated clicks of which 3 % end in a sale: sums that are mostly zero, and the rest a heavy tail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests.support.real_data import ID, Task

RATE, LARGEST = 0.03, 500
TRAINED_ON, TESTED_ON = 150_000, 400_000
SHOPS = 200
WEIGHTS = np.array([0.7, 0.5, -0.3, 0.0])  # of four features, in log-odds of a sale


@dataclass(frozen=True)
class Amounts:
    """Of a sale: log-normal around 20, moved by what the features `told` of it, and `spread` around that."""

    told: float
    spread: float


KINDS = {"sales": Amounts(0.2, 0.9), "sales-told": Amounts(1.0, 0.5)}


def sales(name: str, seed: int) -> Task:
    """A label in 0:500, four whole numbers, a shop of 200 and a price; shops differ in chance and amount of a sale."""
    amounts, rng = KINDS[name], np.random.default_rng([12, seed])
    n = TRAINED_ON + TESTED_ON
    numbers = rng.integers(-3, 4, (n, len(WEIGHTS)))
    shop = rng.zipf(1.5, n) % SHOPS
    price = np.maximum(np.exp(rng.normal(0.0, 0.7, n)).round(1), 0.1)
    shop_sells, shop_pays = rng.normal(0.0, 0.7, SHOPS), rng.normal(0.0, 0.5, SHOPS)
    score = numbers @ WEIGHTS + shop_sells[shop] + 0.4 * (numbers[:, 0] > 0) * (numbers[:, 1] < 0)
    low, high = -20.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.mean(1.0 / (1.0 + np.exp(-middle - score))) > RATE else (middle, high)
    sold = rng.random(n) < 1.0 / (1.0 + np.exp(-low - score))
    log_amount = 3.0 + amounts.told * (shop_pays[shop] + 0.8 * np.log(price)) + amounts.spread * rng.normal(size=n)
    label = np.where(sold, np.clip(np.ceil(np.exp(log_amount)), 1, LARGEST), 0).astype(np.int64)
    table = pa.table(
        {
            ID: np.arange(n),
            **{f"x{at}": numbers[:, at].astype(np.int8) for at in range(len(WEIGHTS))},
            "shop": pa.array([f"s{one}" for one in shop]),
            "price": price,
            "amount": label,
        }
    )
    train, test = table.slice(0, TRAINED_ON), table.slice(TRAINED_ON)
    return Task(name, "amount", f"0:{LARGEST}", "squared", False, train, test)
