"""Made-up ad clicks with features (the publisher's side) and revenue (the advertiser's side).

Category, country, device, engagement and the rest decide how likely a sale is and its worth: price · purchasing power ·
exp(0.45·taste + noise) · a number of pieces. Others leave with 0 to 5 euros. About 3 labels in 10 are below 5 euros,
the median is 45, and 1 in 20 ends at the clip. A good model explains half of the variance of the clipped label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deploy.demo.shop import Shop

ID, LABEL, DOMAIN = "click_id", "revenue_eur", "0:400"
MIDNIGHT, DAY_SECONDS = 1_772_323_200, 86_400  # of the shop's day
HELD_OUT = 4  # one later click per this many clicks
CATEGORIES = 40
COUNTRIES = [
    *("DE", "FR", "IT", "ES", "NL", "PL", "AT", "BE", "SE", "CZ"),
    *("PT", "DK", "GR", "HU", "FI", "RO", "IE", "NO", "BG", "SK"),
]
DEVICES = ["desktop", "phone", "tablet"]
KINDS = ["shoes", "toys", "books", "garden", "kitchen", "audio", "sports", "beauty"]
STYLES = ["basic", "classic", "outlet", "premium", "pro"]


def write(count: int, seed: int, folder: Path, tag: str) -> tuple[pa.Table, pa.Table]:
    """Clicks of the story and later, held-out ones; both written to the folder, features and revenue apart."""
    log = generate(count + count // HELD_OUT, seed, f"clk{tag}")
    now, later = log.slice(0, count), log.slice(count)
    pq.write_table(now.drop_columns([LABEL]), folder / "features.parquet")
    pq.write_table(now.select([ID, LABEL]), folder / "revenue.parquet")
    # features and truth in one file exist only because this is a simulation
    pq.write_table(
        later.drop_columns([LABEL]).append_column(LABEL, pa.array(labels_of(later))), folder / "held-out.parquet"
    )
    return now, later


def examples(rows: int, retail: str | None = None) -> tuple[pa.Table, pa.Table, str]:
    """Examples of the guides' notebooks, four fifths to learn from and later ones (`id`, features, `label`), and the
    domain of their labels: made-up clicks, or sales of the file `retail`, lines of UCI's Online Retail as Parquet."""
    if retail is None:
        clicks = generate(rows, 0, "clk")
        ids, truth, domain = clicks[ID], labels_of(clicks), DOMAIN
        features = clicks.drop_columns([ID, LABEL])
    else:
        lines = pq.read_table(retail)
        lines = lines.take(np.random.default_rng(0).permutation(len(lines))[:rows])
        ids, domain = pa.array([f"line-{row}" for row in lines["row_id"].to_pylist()]), "0:60"
        truth = np.floor(np.clip(lines["sales_amount_gbp"].to_numpy(), 0, 60))
        features = lines.select(["unit_price_gbp", "stock_code", "country"])
    table = features.add_column(0, "id", ids).append_column("label", pa.array(truth))
    now, later = table.slice(0, rows * 4 // 5), table.slice(rows * 4 // 5)
    for at, name in enumerate(features.column_names, 1):
        if pa.types.is_string(table.schema.field(name).type):  # a text that is new counts as missing, as at every model
            common = pc.is_in(later[name], now[name].combine_chunks())
            later = later.set_column(at, name, pc.if_else(common, later[name], None))
    return now, later, domain


def labels_of(clicks: pa.Table) -> npt.NDArray[np.float64]:
    """float64[n]: revenue as the domain 0:400 holds it: clipped, rounded down to whole euros."""
    return np.asarray(np.floor(np.clip(clicks[LABEL].to_numpy(), 0.0, 400.0)), np.float64)


def generate(clicks: int, seed: int, prefix: str) -> pa.Table:
    """Clicks with ids that begin with `prefix`, their features and revenue; the same seed gives the same."""
    rng = np.random.default_rng(seed)
    shop = np.random.default_rng(20221103)  # the shop and its customers stay the same whatever log is drawn
    level = shop.normal(4.1, 0.8, CATEGORIES)
    spread = shop.uniform(0.25, 0.6, CATEGORIES)
    rate = shop.normal(0.0, 0.8, CATEGORIES)
    popularity = 1.0 / np.arange(1, CATEGORIES + 1) ** 0.7
    power = np.exp(shop.normal(0.0, 0.25, len(COUNTRIES)))
    home = 1.0 / np.arange(1, len(COUNTRIES) + 1) ** 0.8

    category = rng.choice(CATEGORIES, clicks, p=popularity / popularity.sum())
    country = rng.choice(len(COUNTRIES), clicks, p=home / home.sum())
    device = rng.choice(len(DEVICES), clicks, p=[0.34, 0.56, 0.10])
    price = np.clip(np.exp(rng.normal(level[category], spread[category])), 1.0, 900.0)
    engagement = rng.beta(2.0, 2.5, clicks)
    position = 1 + np.minimum(rng.geometric(0.35, clicks) - 1, 7)
    days = np.minimum(rng.geometric(0.12, clicks) - 1, 60)
    hour = np.floor(rng.beta(3.2, 2.2, clicks) * 24).astype(np.int64)
    weekday = rng.integers(0, 7, clicks)

    taste = (
        2.2 * (engagement - 0.5)
        + rate[category]
        + np.array([0.35, -0.3, 0.05])[device]
        + 0.35 * ((hour >= 18) & (hour <= 22))
        + 0.2 * (weekday >= 5)
        - 0.12 * (position - 1)
        - 0.25 * np.log1p(days)
    )
    worth = price * power[country] * np.exp(0.45 * taste + rng.normal(0.0, 0.45, clicks))
    worth *= 1 + rng.binomial(3, np.clip(0.75 * engagement, 0.0, 1.0))
    leaves = taste + rng.logistic(0.0, 0.6, clicks) < -1.5
    revenue = np.where(leaves, rng.uniform(0.0, 5.0, clicks), worth)

    return pa.table(
        {
            ID: [f"{prefix}-{i:08d}" for i in rng.permutation(clicks)],
            "category": np.array([f"{kind}-{style}" for kind in KINDS for style in STYLES])[category],
            "price": np.round(price, 2),
            "country": np.array(COUNTRIES)[country],
            "device": np.array(DEVICES)[device],
            "engagement": np.round(engagement, 4),
            "position": position.astype(np.int32),
            "days_since_visit": days.astype(np.int32),
            "hour": hour.astype(np.int32),
            "weekday": weekday.astype(np.int32),
            LABEL: np.round(revenue, 2),
        }
    )


def shop_day(shop: Shop, revenue: pa.Table) -> None:
    """Fill the shop's outbox with events that add up to the revenue of each click, and others that no label may count,
    all in disorder."""
    rng, count = np.random.default_rng(1), len(revenue)
    amounts = np.rint(revenue[LABEL].to_numpy() * 100).astype(np.int64).tolist()
    seconds = rng.integers(MIDNIGHT, MIDNIGHT + DAY_SECONDS, count).tolist()
    for i, (click, cents, at) in enumerate(zip(revenue[ID].to_pylist(), amounts, seconds, strict=True)):
        if i % 20 == 0:  # two of the three pieces come back, a week later
            shop.refund(shop.sell(click, 3 * cents, at), 2 * cents, at + 7 * DAY_SECONDS)
        elif i % 20 == 1:
            shop.sell(click, cents // 2, at)
            shop.sell(click, cents - cents // 2, at + 3600)
        else:
            shop.sell(click, cents, at)
        if i % 50 == 2:
            shop.sell(click, 9900, at, mmt_only=True)
        elif i % 50 == 3:
            shop.emit(f"visit-{i}", "page_view", click, at)
        elif i % 50 == 4:
            shop.sell(f"elsewhere-{i}", cents, at)  # an advertisement of another publisher
        elif i % 50 == 5:
            shop.sell(None, cents, at)  # nobody's advertisement
    shop.outbox += shop.outbox[::40]  # no answer came, so they go out again
    rng.shuffle(shop.outbox)
