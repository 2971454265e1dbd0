"""What large categories say without labels: by hand, planted and shuffled, saved and damaged, and what it is worth."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training.category_statistics import FEWEST, Statistic, learn_statistics
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import ModelInput
from features_party.training.learners.levels import learn_features
from features_party.training.model import TrainedModel
from label_dp.domain import Domain
from label_dp.errors import InvalidFile
from tests.support.training import draws, fit

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
TEN = Domain.parse("0:10")


def learned(
    numbers: dict[str, list[float]], sizes: list[int], **codes: list[int]
) -> tuple[dict[str, Statistic], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Statistics by name, and the arrays that they were learned from."""
    cells = np.array(list(numbers.values()), np.float32).T.reshape(len(next(iter(codes.values()))), len(numbers))
    places = np.array(list(codes.values()), np.int32).T
    found = learn_statistics(cells, places, draws(len(cells)), sizes, list(numbers), list(codes))
    assert len({s.name for s in found}) == len(found)
    return {s.name: s for s in found}, cells, places


def test_counts_means_and_differences_by_hand() -> None:
    nan = math.nan
    prices, shops = [1.0, 2.0, nan, 10.0, 7.0, 20.0], [0, 0, 0, 1, -1, 1]
    found, numbers, codes = learned({"price": prices}, [FEWEST, 3], shop=shops, kind=[0, 1, -1, 0, 1, 0])
    assert list(found) == ["shop: rows", "shop: mean price", "price above that of its shop"]  # nothing of kind
    rows, mean, above = found.values()
    # missing first, then the values; the third value and those after it did not come
    assert rows.table[:4] == pytest.approx([math.log(2), math.log(4), math.log(3), 0.0], rel=1e-5)
    # 8 is the mean of the five prices; a value has five rows of it besides its own, and NaN is none of its own
    means = [(7 + 40) / 6, (3 + 40) / 7, (30 + 40) / 7, 8.0]
    assert mean.table[:4] == pytest.approx(means, rel=1e-5)
    assert mean.table.shape == rows.table.shape == (FEWEST,)
    assert np.all(mean.table[4:] == 8.0)
    assert mean.of(numbers, codes) == pytest.approx([means[1]] * 3 + [means[2], means[0], means[2]], rel=1e-5)
    difference = above.of(numbers, codes)
    assert difference == pytest.approx(
        [1 - means[1], 2 - means[1], nan, 10 - means[2], 7 - means[0], 20 - means[2]], rel=1e-5, nan_ok=True
    )
    assert difference.dtype == np.float32


def test_a_number_without_any_value_has_means_of_nothing() -> None:
    found, numbers, codes = learned({"x": [math.nan] * 3}, [FEWEST], shop=[0, 1, -1])
    assert found["shop: mean x"].table.tolist() == [0.0] * FEWEST
    assert np.isnan(found["x above that of its shop"].of(numbers, codes)).all()


def test_counts_of_the_other_category_beside_a_value_by_hand() -> None:
    found, _, _ = learned({}, [FEWEST, FEWEST + 1], shop=[0, 0, 1], city=[0, 1, 1])
    beside = [math.log(2), math.log(3), math.log(3)]  # city 0 has one row, city 1 has two
    whole = sum(beside) / 3
    assert found["shop: rows of its city"].table[:3] == pytest.approx(
        [whole, (beside[0] + beside[1] + 5 * whole) / 7, (beside[2] + 5 * whole) / 6], rel=1e-5
    )
    alone = [math.log(3), math.log(3), math.log(2)]  # shop 0 has two rows, shop 1 one
    whole = sum(alone) / 3
    assert found["city: rows of its shop"].table[:3] == pytest.approx(
        [whole, (alone[0] + 5 * whole) / 6, (alone[1] + alone[2] + 5 * whole) / 7], rel=1e-5
    )


def test_a_category_is_large_from_65_values_and_few_numbers_are_described() -> None:
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(-1, FEWEST - 1, 300).tolist() for name in "abcd"}
    numbers = {f"n{at}": rng.normal(size=300).tolist() for at in range(6)}
    found, _, _ = learned(numbers, [FEWEST, FEWEST - 1, FEWEST + 1, FEWEST + 2], **codes)
    assert {s.category for s in found.values()} == {0, 2, 3}
    found, _, _ = learned(numbers, [FEWEST, FEWEST + 3, FEWEST + 1, FEWEST + 2], **codes)
    assert {s.category for s in found.values()} == {1, 2, 3}  # those of the most values
    assert {s.less for s in found.values()} == {None, 0, 1, 2, 3}
    assert not any("n4" in name for name in found)


# --- coordinates -------------------------------------------------------------------------------------------


def partners(n: int, values: int, groups: int, seed: int = 0) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """int32[n] of two categories; nine in ten rows have a partner of their group, the value modulo `groups`."""
    rng = np.random.default_rng(seed)
    one = rng.integers(0, values, n).astype(np.int32)
    group = np.where(rng.random(n) < 0.9, one % groups, rng.integers(0, groups, n))
    other = group + groups * rng.integers(0, values // groups, n)
    return one, other.astype(np.int32)


def coordinates(one: npt.NDArray[np.int32], other: npt.NDArray[np.int32], values: int) -> FloatArray:
    """float64[values, axes] of the first category, missing left out."""
    cells, places, sizes = np.zeros((len(one), 0), np.float32), np.stack([one, other], axis=1), [values + 1] * 2
    found = learn_statistics(cells, places, draws(len(one)), sizes, [], ["one", "other"])
    return np.array([s.table[1:] for s in found if s.category == 0 and "coordinate" in s.name], np.float64).T


def spread_within(found: FloatArray, groups: int) -> float:
    """Distances within groups over distances between them."""
    group = np.arange(len(found)) % groups
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    same = group[:, None] == group[None]
    return float(apart[same & ~np.eye(len(found), dtype=bool)].mean() / apart[~same].mean())


def test_values_that_come_beside_the_same_values_are_near_each_other() -> None:
    values, groups = 120, 4
    one, other = partners(6000, values, groups)
    found = coordinates(one, other, values)
    assert found.shape[0] == values
    assert np.abs(found).max() <= 1.0
    assert spread_within(found, groups) < 0.5
    shuffled = coordinates(one, np.random.default_rng(1).permutation(other), values)
    assert spread_within(shuffled, groups) > 0.9  # no structure, no groups: the same check fails
    assert np.array_equal(coordinates(one, other, values), found)


# --- schema and model --------------------------------------------------------------------------------------


def shops(n: int = 900, seed: int = 0, unseen: bool = False) -> pa.Table:
    """Two large categories, one of them with gaps, and two numbers with NaN."""
    rng = np.random.default_rng(seed)
    one, other = partners(n, 80, 4, seed)
    price = rng.normal(10, 3, n)
    price[::7] = np.nan
    return pa.table(
        {
            "price": price,
            "shop": [None if v == 5 else f"s{v + 7 * unseen}" for v in one],
            "city": [f"c{v}" for v in other],
            "flag": [str(v % 2) for v in one],
        }
    )


TABLE = shops()
LABELS = np.clip(np.round(np.random.default_rng(9).normal(5, 3, 900) + (np.arange(900) % 3)), 0, 10)


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return fit(TABLE, LABELS, domain=TEN, model="trees")


def test_coordinates_are_for_trees_alone_and_come_last(model: TrainedModel) -> None:
    """An axis has no order that a smooth effect could follow."""
    schema = model.schema
    flags = [statistic.trees_only for statistic in schema.statistics]
    assert flags == ["coordinate" in statistic.name for statistic in schema.statistics]
    assert flags == sorted(flags)
    assert 0 < sum(flags) < len(flags)
    shown = len(schema.number_names) - sum(flags)
    encoded = schema.encode(TABLE)
    seen = ModelInput(encoded, model.effects.apply(encoded.codes), schema.sizes)
    every, smooth = learn_features(seen), learn_features(seen, shown)
    assert max(f.at for f in every if f.source == "number") == len(schema.number_names) - 1
    assert max(f.at for f in smooth if f.source == "number") == shown - 1
    assert [f for f in smooth if f.source != "number"] == [f for f in every if f.source != "number"]


def test_without_a_large_category_the_schema_stays_as_it_is() -> None:
    small = TABLE.select(["price", "flag"])
    schema = FeatureSchema.learn(small)
    encoded = schema.encode(small)
    same, again = schema.with_statistics(encoded, draws(len(encoded)))
    assert same == schema
    assert again is encoded


def test_a_schema_with_statistics_encodes_as_in_training_also_from_json() -> None:
    schema = FeatureSchema.learn(TABLE)
    extended, encoded = schema.with_statistics(schema.encode(TABLE), draws(TABLE.num_rows))
    assert len(extended.number_names) == encoded.numbers.shape[1] > len(extended.column_numbers) == 1
    assert extended.columns == schema.columns
    again = FeatureSchema.from_json(json.loads(json.dumps(extended.as_json())))
    for one in (extended, again):
        assert one.number_names == extended.number_names
        np.testing.assert_array_equal(one.encode(TABLE).numbers, encoded.numbers)
        np.testing.assert_array_equal(one.encode(TABLE).codes, encoded.codes)
    later = again.encode(shops(50, seed=3, unseen=True))
    rows = later.numbers[:, again.number_names.index("shop: rows")]
    assert (later.codes[:, 0] < 0).any()
    missing = again.statistics[again.number_names.index("shop: rows") - 1].table[0]
    assert np.all(rows[later.codes[:, 0] < 0] == missing)  # unseen counts as missing


def test_a_reloaded_model_predicts_the_same(model: TrainedModel) -> None:
    assert model.schema.statistics
    again = TrainedModel.from_json(json.loads(json.dumps(model.as_json())))
    for table in (TABLE, shops(200, seed=4, unseen=True)):
        np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.body.importance(again.schema) == model.body.importance(model.schema)


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def damage(statistic: dict[str, Any]) -> None:
        statistic[key] = value(statistic[key]) if callable(value) else value

    return damage


DAMAGES = {
    "shorter table": change("table", lambda table: table[1:]),
    "longer table": change("table", lambda table: [*table, 0.0]),
    "table of tables": change("table", lambda table: [table]),
    "not a number": change("table", lambda table: [math.nan, *table[1:]]),
    "infinite": change("table", lambda table: [math.inf, *table[1:]]),
    "beyond float32": change("table", lambda table: [1e39, *table[1:]]),
    "text": change("table", lambda table: ["x", *table[1:]]),
    "negative category": change("category", -1),
    "no such category": change("category", 3),
    "small category": change("category", 2),
    "no such number": change("less", 1),
    "negative number": change("less", -1),
    "no table": lambda statistic: statistic.pop("table"),
    "no less": lambda statistic: statistic.pop("less"),
    "not said who sees it": lambda statistic: statistic.pop("trees_only"),
    "no name": lambda statistic: statistic.pop("name"),
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_statistics_are_refused(model: TrainedModel, damage: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(json.dumps(model.as_json()))
    TrainedModel.from_json(data)
    damage(data["schema"]["statistics"][0])
    with pytest.raises(InvalidFile, match="damaged"):
        TrainedModel.from_json(data)


def test_statistics_that_are_one_too_few_or_too_many_are_refused(model: TrainedModel) -> None:
    for change_list in (lambda found: found[1:], lambda found: [*found, found[0]], lambda found: []):
        data = json.loads(json.dumps(model.as_json()))
        data["schema"]["statistics"] = change_list(data["schema"]["statistics"])
        with pytest.raises(InvalidFile, match="damaged"):
            TrainedModel.from_json(data)


def test_labels_are_never_read(model: TrainedModel) -> None:
    """No argument has labels, and models of other labels have the same statistics."""
    assert list(inspect.signature(learn_statistics).parameters) == [
        "numbers",
        "codes",
        "draws",
        "sizes",
        "number_names",
        "category_names",
        "crossed",
    ]
    assert list(inspect.signature(FeatureSchema.with_statistics).parameters) == ["self", "encoded", "draws"]
    other = fit(TABLE, LABELS[::-1].copy(), domain=TEN, model="trees")
    assert other.schema.as_json() == model.schema.as_json()


@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_models_of_other_kinds_and_those_asked_for_without_have_none(kind: str) -> None:
    found = fit(TABLE, LABELS, domain=TEN, model=kind, category_statistics=kind == "linear")
    assert found.schema.statistics == ()


# --- what it is worth --------------------------------------------------------------------------------------

NOISE = 6.0  # 36 times the signal's variance of 1: 6000 rows say as much as 160 without noise


def by_partner(n: int, seed: int, shuffled: bool = False) -> tuple[pa.Table, FloatArray]:
    """400 shops of four groups, whose cities tell the group; labels 0 or 2 by group."""
    one, other = partners(n, 400, 4, seed)
    if shuffled:
        other = np.random.default_rng(seed).permutation(other)
    return pa.table({"shop": [f"s{v}" for v in one], "city": [f"c{v}" for v in other]}), 2.0 * (one % 4 < 2)


def by_frequency(n: int, seed: int) -> tuple[pa.Table, FloatArray]:
    """500 shops of few rows, with label 0, and 50 of ten times as many, with label 2."""
    odds = np.where(np.arange(550) < 500, 1.0, 10.0)
    shop = np.random.default_rng(seed).choice(550, n, p=odds / odds.sum())
    return pa.table({"shop": [f"s{v}" for v in shop]}), 2.0 * (shop >= 500)


def errors(world: Callable[[int, int], tuple[pa.Table, FloatArray]]) -> tuple[float, float]:
    """Test error over the variance of the truth, mean of three draws: with statistics, without."""
    found = []
    for seed in range(3):
        (table, truth), (later, expected) = world(6000, seed), world(2000, seed + 100)
        labels = truth + np.random.default_rng(seed + 50).choice([-NOISE, NOISE], len(truth))
        for on in (True, False):
            model = fit(table, labels, noise_variance=NOISE**2, model="trees", category_statistics=on)
            found.append(float(np.mean((model.predict(later) - expected) ** 2) / np.var(expected)))
    return float(np.mean(found[::2])), float(np.mean(found[1::2]))


def test_partners_say_under_noise_what_labels_do_not() -> None:
    """Seen: 0.19 of the variance against 0.74."""
    having, lacking = errors(by_partner)
    assert having < 0.5 * lacking


def test_frequency_says_under_noise_what_labels_do_not() -> None:
    """Seen: 0.16 of the variance against 0.57."""
    having, lacking = errors(by_frequency)
    assert having < 0.5 * lacking


def test_partners_at_random_say_nothing() -> None:
    """The control, seen at 0.76 against 0.77: the gain comes from partners, not from more columns."""
    having, lacking = errors(lambda n, seed: by_partner(n, seed, shuffled=True))
    assert having > 0.8 * lacking


def test_a_category_that_says_what_another_says_has_no_statistics() -> None:
    """A name beside a number: one comes with the other, but for a misprint here and there."""
    rng = np.random.default_rng(6)
    number, shop = rng.integers(0, 90, 3000), rng.integers(0, 80, 3000)
    name = np.where(rng.random(3000) < 0.003, number + 1, number)
    found, _, _ = learned({}, [91, 92, 81], number=list(number), name=list(name), shop=list(shop))
    assert {s.split(":")[0] for s in found} == {"name", "shop"}
    found, _, _ = learned({}, [91, 81], number=list(number), shop=list(shop))
    assert {s.split(":")[0] for s in found} == {"number", "shop"}
