"""Edited models: documents of every learner, edits that know where they hurt, and a reader in a process of its own.

`python -m tests.support.model_edits FOLDER` reads each document there as a model, uses it, and says what came of it.
"""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from features_party.models.export import as_xgboost
from features_party.models.folder import SavedModel
from features_party.training.cells import CellLikelihood
from features_party.training.correction import correct
from features_party.training.effects import Effects
from features_party.training.model import TrainedModel
from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.score_maps import ScoreMap
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.domain import Domain
from label_dp.errors import LabelDPError
from label_dp.strict_json import read_json
from tests.support.classes import k_ary
from tests.support.messages import draw, world
from tests.support.training import fit, quick_validation

TEN = Domain.parse("0:10")
KEPT_TREES = 9
MEMORY = 3 << 30  # of address space; the process itself has a good part of it
SECONDS = 5  # of processor time for one document


def table(n: int, seed: int = 0) -> pa.Table:
    """Numbers, a small category, a large one and a day."""
    rng, found = np.random.default_rng(seed), world(n, seed).features
    shops = pa.array([None if s % 50 == 49 else f"shop {s}" for s in rng.integers(0, 90, n)])
    days = pa.array(rng.integers(18_000, 19_000, n).astype(np.int32)).cast(pa.date32())
    return found.append_column("shop", shops).append_column("day", days)


NAMES = (
    *("ensemble squared", "ensemble poisson", "trees poisson", "linear squared", "trees calibrated", "mlp squared"),
    *("trees absolute", "ensemble log", "linear log", "ensemble classes", "trees classes", "ensemble through"),
)


@cache
def learner(name: str) -> TrainedModel:
    """A model of the kind and loss that `name` says, as a folder may hold it, with few trees."""
    model, how = name.split()
    return TrainedModel.from_json(shortened(_found(model, how).as_json()))


def _found(model: str, how: str) -> TrainedModel:
    w, features = world(400), table(400)
    if how == "through":
        found = _through(w.labels, features)
        assert "through the channel" in [member["name"] for member in found.body.members()]
        return found
    if how == "calibrated":
        grid = ScoreGrid.parse("0:10:100")
        steps = ScoreMap(grid, MonotoneMap(grid.size, np.array([20, 60]), np.array([1.0, 4.0, 6.0])), interpolate=True)
        return replace(learner("trees poisson"), calibration=steps)
    if model == "mlp":
        return _network(w.labels)
    with quick_validation():
        if how == "log":
            two = (w.labels > 5).astype(float)
            return fit(features, two, domain=Domain.parse("0:1"), model=model, loss="log")
        if how == "classes":
            thirds = np.minimum(w.labels // 3, 2.0)
            return fit(features, thirds, domain=Domain.parse("0:2"), model=model, loss="log")
        return fit(features, w.labels, domain=TEN, model=model, loss=how)


def _through(labels: Any, features: pa.Table) -> TrainedModel:
    channel = k_ary(TEN.k, "6")
    outputs, corrected = draw(channel, labels), correct(channel, "debias")
    return fit(
        features,
        corrected.corrected[outputs],
        noise_variance=corrected.noise_variance,
        domain=TEN,
        unbiased=True,
        cells=CellLikelihood.through([channel], np.zeros(400, np.int8), outputs),
    )


def _network(labels: Any) -> TrainedModel:
    from tests.unit.features_party.training.learners.test_mlp import by_hand

    plain = fit(world(400).features.append_column("b", pa.array(range(400))), labels, domain=TEN, model="linear")
    network = by_hand()[0]
    inputs = network.inputs
    inputs = replace(inputs, mean=inputs.mean[:2], spread=inputs.spread[:2], rows=inputs.rows[:1])
    network = replace(network, inputs=inputs)
    category = next(c for c in plain.schema.columns if c.kind == "category")
    columns = tuple(replace(c, vocabulary=("x", "y", "z")) if c is category else c for c in plain.schema.columns)
    layers = ((network.layers[0][0][: network.inputs.width], network.layers[0][1]), *network.layers[1:])
    schema, body = replace(plain.schema, columns=columns), replace(network, layers=layers)
    return replace(plain, kind="mlp", schema=schema, effects=Effects(()), body=body)


@cache
def document_of(name: str) -> dict[str, Any]:
    """What `learner(name)` is written as; a test that edits it copies it."""
    found: dict[str, Any] = json.loads(json.dumps(learner(name).as_json(), allow_nan=False))
    return found


def boosters(document: dict[str, Any]) -> list[dict[str, Any]]:
    """XGBoost's documents in that of a model."""
    body = document["body"]
    if "boosters" in body:
        return [one["learner"]["gradient_booster"]["model"] for one in body["boosters"]]
    parts = [member["body"] for member in body["members"]] if "members" in body else [body]
    return [part["xgboost"]["learner"]["gradient_booster"]["model"] for part in parts if "xgboost" in part]


def shortened(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document))
    for model in boosters(found):
        a_round = model["iteration_indptr"][1]
        n = KEPT_TREES - KEPT_TREES % a_round
        model["trees"] = model["trees"][:n]
        model["gbtree_model_param"]["num_trees"] = str(n)
        model["tree_info"], model["iteration_indptr"] = model["tree_info"][:n], list(range(0, n + 1, a_round))
    return found


Edit = Callable[[dict[str, Any]], None]


def _inner(model: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A tree and a node of it that splits a number and has children which have children."""
    for tree in model["trees"]:
        for node, child in enumerate(tree["left_children"]):
            if child > 0 and tree["left_children"][child] > 0 and not tree["split_type"][node]:
                return tree, node
    raise AssertionError("no tree is two levels deep")


def _by_category(models: list[dict[str, Any]]) -> dict[str, Any]:
    return next(tree for model in models for tree in model["trees"] if tree["categories_nodes"])


def _node(name: str, value: Any) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        tree, node = _inner(boosters(document)[0])
        tree[name][node] = value(tree, node) if callable(value) else value

    return edit


def _category(name: str, value: int) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        _by_category(boosters(document))[name][0] = value

    return edit


def _whole(*path: Any, value: Any) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        at = boosters(document)[0]
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return edit


def _deep(document: dict[str, Any]) -> None:
    """A chain of nodes, each the child of the last, 100,000 deep: recursion would end the process."""
    model, n = boosters(document)[0], 200_001
    inner = list(range(0, n - 1, 2))
    left, right = [-1] * n, [-1] * n
    for node in inner:
        left[node], right[node] = node + 1, node + 2
    tree = model["trees"][0]
    zeros = {name: [0] * n for name, values in tree.items() if isinstance(values, list)}
    model["trees"][0] = tree | zeros | {"left_children": left, "right_children": right}
    model["trees"][0] |= {name: [] for name in tree if name.startswith("categories")}
    model["trees"][0]["tree_param"]["num_nodes"] = str(n)


# what was tried on XGBoost by hand; most of them ended the interpreter, two made it run for ever or take all memory
BY_HAND: dict[str, Edit] = {
    "a child beyond the nodes": _node("left_children", 10**6),
    "a child below -1": _node("left_children", -7),
    "a child that is its own parent": _node("left_children", lambda _, node: node),
    "a cycle through the root": _node("right_children", 0),
    "two parents of one child": _node("right_children", lambda tree, node: tree["left_children"][node]),
    "one child only": _node("right_children", -1),
    "a feature that is not there": _node("split_indices", 10**6),
    "a negative feature": _node("split_indices", -1),
    "a number split as a category": _node("split_type", 1),
    "a segment that is not there": _category("categories_segments", 10**7),
    "a segment that is too long": _category("categories_sizes", 10**7),
    "a category of a bit set of 128 MiB": _category("categories", 1 << 30),
    "a category of a leaf": _category("categories_nodes", 10**6),
    "a group that is not there": _whole("tree_info", 0, value=10**6),
    "a leaf that is no number": _whole("trees", 0, "split_conditions", 0, value=float("nan")),
    "more nodes than there are": _whole("trees", 0, "tree_param", "num_nodes", value="10000000"),
    "vectors in the leaves": _whole("trees", 0, "tree_param", "size_leaf_vector", value="1000"),
    "fewer children than nodes": _whole("trees", 0, "right_children", value=[2]),
    "fewer trees than it says": _whole("trees", value=[]),
    "many trees a round": _whole("gbtree_model_param", "num_parallel_tree", value="1000000"),
    "rounds that are not there": _whole("iteration_indptr", -1, value=10**6),
    "a tree that is a chain": _deep,
}

HOSTILE: tuple[Any, ...] = (
    *(0, 1, -1, 2, 64, 65, 255, 256, 10**6, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 62, 1 << 63, 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 3.5e38, 1e300, -1e308, float("nan"), float("inf")),
    *(
        True,
        False,
        None,
        "",
        "0",
        "1",
        "-1",
        "1_0",
        "\u0661",
        "999999999",
        "nan",
        "[1E0]",
        "reg:logistic",
        "dart",
        "trees",
    ),
    *([], {}, [0], [[]], {"0": 0}, "A" * 2000),
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in a document, the containers of numbers included."""
    waiting = [value]
    while waiting:
        inside = waiting.pop()
        keys: Any = inside.keys() if isinstance(inside, dict) else range(len(inside))
        for key in list(keys):
            yield inside, key
            if isinstance(inside[key], dict | list):
                waiting.append(inside[key])


def edited(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with one to three edits: a hostile value, a changed number, something left out, doubled or swapped."""
    found = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 3))):
        inside, key = _chosen(found, rng)
        what = rng.randrange(7)
        if what <= 1:
            inside[key] = copy.deepcopy(rng.choice(HOSTILE))
        elif what == 2 and type(inside[key]) in (int, float):
            inside[key] = inside[key] + rng.choice((-2, -1, 1, 2)) if rng.random() < 0.7 else inside[key] * -1e6
        elif what == 3:
            del inside[key]
        elif what == 4 and isinstance(inside, list):
            inside.insert(key, copy.deepcopy(inside[key]))
        elif what == 5:
            other, there = _chosen(found, rng)
            inside[key] = copy.deepcopy(other[there])
        elif isinstance(inside[key], list) and inside[key]:
            inside[key] = rng.choice((inside[key][:-1], inside[key] * 2, inside[key][::-1]))
    return found


def _chosen(document: dict[str, Any], rng: random.Random) -> tuple[Any, Any]:
    """Down from the top by chance, so that every part is met, however small; arrays of trees more often than others."""
    inside: Any = document
    models = boosters(document) if rng.random() < 0.3 and _has_boosters(document) else []
    if models and isinstance(models[0].get("trees"), list) and models[0]["trees"]:
        inside = rng.choice(models[0]["trees"])
        inside = inside if isinstance(inside, dict) and inside else document
    while True:
        key = rng.choice(list(inside.keys())) if isinstance(inside, dict) else rng.randrange(len(inside))
        if not isinstance(inside[key], dict | list) or not inside[key] or rng.random() < 0.15:
            return inside, key
        inside = inside[key]


def _has_boosters(document: dict[str, Any]) -> bool:
    try:
        return bool(boosters(document))
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


def flipped(data: bytes, rng: random.Random) -> bytes:
    """A copy with one to four bytes changed, and sometimes cut short."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        found[rng.randrange(len(found))] = rng.choice(b'0123456789-+.eE,:[]{}"nt \xff\x00')
    return bytes(found[: rng.randrange(len(found))] if rng.random() < 0.05 else found)


ROWS = table(60, seed=3).append_column("b", pa.array(range(60)))


def outcome(data: bytes) -> str:
    """Read as a model and used in every way: `taken`, the code of a typed refusal, or what escaped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TrainedModel.from_json(read_json(data))
            predictions = model.predict(ROWS)
            model.predict(ROWS.slice(0, 0))
            model.body.importance(model.schema)
            again = TrainedModel.from_json(model.as_json())
            assert np.array_equal(again.predict(ROWS), predictions), "read twice it predicts another thing"
            assert np.all(np.isfinite(predictions)), "it predicts what is no number"
            trees = model.body.__class__.__name__ == "Trees" or model.kind == "trees"
            if trees and model.calibration is None:
                as_xgboost(SavedModel(model, {}))
        return "taken"
    except LabelDPError as refusal:
        return refusal.code if refusal.detail.endswith(".") else f"escaped: {refusal.detail}"
    except BaseException as error:
        return f"escaped: {type(error).__name__}: {error}"


def contained(folder: Path, seconds: float = 300) -> tuple[int, dict[str, str]]:
    """(exit status, what became of each document in `folder`), read by a process of its own until it ends."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, "-m", "tests.support.model_edits", str(folder)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=seconds, check=False)
    told: dict[str, str] = dict(json.loads(line) for line in done.stdout.splitlines())
    return done.returncode, told


def _late(*_: object) -> None:
    raise TimeoutError(f"not done after {SECONDS} s")


def main(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _late)
    for path in sorted(folder.iterdir()):
        signal.alarm(4 * SECONDS)  # what Python sees of it; a loop in the library meets the limit below
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + 2 * SECONDS, resource.RLIM_INFINITY))
        print(json.dumps([path.name, outcome(path.read_bytes())]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
