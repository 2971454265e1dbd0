"""Check of a booster's document before the tree library reads it.

XGBoost trusts the arrays that it loads: an edited child, feature or segment crashes the process, and a cycle never
ends. So a document is not passed on. Its trees are checked and written anew into the document of an empty booster of
the installed library: the library reads only what this module wrote. Members that no prediction needs are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from features_party.training.reading import FLOAT32, FloatArray, IntArray, listed, number, numbers, wholes
from label_dp.schemas.json_types import JsonObject

MAX_DEPTH = 64  # the library descends trees by recursion; the capacity rule stops at 8
NOBODY = (1 << 31) - 1  # the parent of a root
LEAF = -1
BASE = re.compile(r"\[?(-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?)\]?", re.ASCII)


def checked_document(document: Any, kinds: Sequence[str], sizes: Sequence[int], classes: int = 0) -> bytes:
    """Write a safe document of the same trees for the library.

    `kinds` is "q" or "c" per column of the trees' input, `sizes` the number of codes of a column of kind "c" (0 for
    others). `classes`: each round has a tree for each, in their order; 0: one tree a round.
    Raises ValueError, KeyError or TypeError for anything but a forest over such columns.
    """
    learner = document["learner"]
    parameters, booster = learner["learner_model_param"], learner["gradient_booster"]
    model = booster["model"]
    trees = listed(model["trees"])
    n = len(trees)
    told = {
        "objective": learner["objective"]["name"],
        "booster": booster["name"],
        "columns": parameters["num_feature"],
        "classes": parameters["num_class"],
        "targets": parameters["num_target"],
        "kinds": learner["feature_types"],
        "trees": model["gbtree_model_param"]["num_trees"],
        "parallel": model["gbtree_model_param"]["num_parallel_tree"],
        "groups": model["tree_info"],
        "rounds": model["iteration_indptr"],
    }
    a_round = classes or 1
    groups, rounds = [at % a_round for at in range(n)], list(range(0, n + 1, a_round))
    wanted = {
        "objective": _objective(classes),
        "booster": "gbtree",
        "columns": str(len(kinds)),
        "classes": str(classes),
        "targets": "1",
        "kinds": list(kinds),
        "trees": str(n),
        "parallel": "1",
        "groups": groups,
        "rounds": rounds,
    }
    if told != wanted or n % a_round:
        raise ValueError("the booster is of another kind than those that are trained here")
    written_document = _empty(kinds, 0.0 if classes else _base(parameters["base_score"]), classes)
    into = written_document["learner"]["gradient_booster"]["model"]
    into["trees"] = [_tree(tree, at, kinds, sizes) for at, tree in enumerate(trees)]
    into["gbtree_model_param"]["num_trees"] = str(n)
    into["tree_info"], into["iteration_indptr"] = groups, rounds
    return json.dumps(written_document, allow_nan=False).encode()


def _objective(classes: int) -> str:
    """Return the objective that the document names; training used our own gradients."""
    return "multi:softprob" if classes else "reg:squarederror"


def _base(text: Any) -> float:
    match = BASE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("the score that the trees start from is no number")
    return number(float(match[1]), -FLOAT32, FLOAT32)


def _empty(kinds: Sequence[str], base: float, classes: int) -> Any:
    """Return the document of a booster without trees, as the installed library writes it."""
    import xgboost as xgb

    row = np.zeros((1, len(kinds)), np.float32)
    data = xgb.DMatrix(row, np.zeros(1), feature_types=list(kinds), enable_categorical="c" in kinds, nthread=1)
    settings: dict[str, Any] = {"objective": _objective(classes), "base_score": base, "nthread": 1, "verbosity": 0}
    settings |= {"num_class": classes} if classes else {}
    return json.loads(bytes(xgb.train(settings, data, num_boost_round=0).save_raw("json")))


def _tree(tree: Any, at: int, kinds: Sequence[str], sizes: Sequence[int]) -> JsonObject:
    """Copy a tree with its nodes in order of depth; unreachable nodes are left out."""
    n = len(listed(tree["left_children"]))
    if tree["tree_param"]["num_nodes"] != str(n) or tree["tree_param"]["size_leaf_vector"] not in ("0", "1"):
        raise ValueError("a tree has another number of nodes than it says, or vectors in its leaves")
    left, right = (wholes(tree[name], LEAF, n - 1, n) for name in ("left_children", "right_children"))
    order = _reached(left, right)
    place = np.full(n, LEAF)
    place[order] = np.arange(len(order))
    left, right = left[order], right[order]
    inner = np.flatnonzero(left != LEAF)
    columns = wholes(tree["split_indices"], 0, NOBODY, n)[order]
    categorical = wholes(tree["split_type"], 0, 1, n)[order]
    if inner.size and columns[inner].max() >= len(kinds):
        raise ValueError("a split looks at a column that is not there")
    split, code = _categories(tree, place)
    by_category = np.zeros(len(order), bool)
    by_category[split] = True
    asks_category = np.zeros(len(order), bool)
    asks_category[inner] = np.array([kind == "c" for kind in kinds])[columns[inner]]
    if not np.array_equal(by_category, asks_category) or not np.array_equal(
        categorical[inner] == 1, asks_category[inner]
    ):
        raise ValueError("a split treats a number as a category, or the other way round")
    if split.size and np.any(code >= np.array(sizes)[columns[split]]):
        raise ValueError("a split asks for a category that is not there")
    down = {"left_children": np.where(left == LEAF, LEAF, place[left])}
    down["right_children"] = np.where(left == LEAF, LEAF, place[right])
    parents = np.full(len(order), NOBODY)
    for children in down.values():
        parents[children[inner]] = inner
    columns[left == LEAF] = 0
    one = np.ones(len(split), np.int64)
    whole_numbers: dict[str, IntArray] = {
        **down,
        "parents": parents,
        "default_left": wholes(tree["default_left"], 0, 1, n)[order],
        "split_indices": columns,
        "split_type": asks_category.astype(np.int64),
        "categories": code,
        "categories_nodes": split,
        "categories_segments": np.arange(len(split)),
        "categories_sizes": one,
    }
    real: dict[str, FloatArray] = {
        name: numbers(tree[name], n, FLOAT32)[order]
        for name in ("split_conditions", "base_weights", "loss_changes", "sum_hessian")
    }
    parameters = {"num_deleted": "0", "num_feature": str(len(kinds)), "num_nodes": str(len(order))}
    return {
        **{name: values.tolist() for name, values in (whole_numbers | real).items()},
        "id": at,
        "tree_param": parameters | {"size_leaf_vector": "1"},
    }


def _reached(left: IntArray, right: IntArray) -> IntArray:
    """List the nodes reachable from the root, level by level. Raises ValueError for anything but a tree."""
    if not left.size or np.any((left == LEAF) != (right == LEAF)):
        raise ValueError("a node of a tree has one child, or there is none")
    visited = np.zeros(len(left), bool)
    visited[0] = True
    levels = [np.zeros(1, np.int64)]
    while (inner := levels[-1][left[levels[-1]] != LEAF]).size:
        below = np.stack([left[inner], right[inner]], axis=1).ravel()
        if visited[below].any() or np.unique(below).size < below.size or len(levels) > MAX_DEPTH:
            raise ValueError("a node of a tree has two parents, or the tree is too deep")
        visited[below] = True
        levels.append(below)
    return np.concatenate(levels)


def _categories(tree: Any, place: IntArray) -> tuple[IntArray, IntArray]:
    """Return the nodes (new numbers, rising) that split by a category, and the category of each."""
    nodes = wholes(tree["categories_nodes"], 0, len(place) - 1)
    m = len(nodes)
    codes = wholes(tree["categories"], 0, NOBODY, m)
    if tree["categories_sizes"] != [1] * m or tree["categories_segments"] != list(range(m)):
        raise ValueError("a split asks for several categories at once, which none here does")
    here = place[nodes]
    codes, here = codes[here != LEAF], here[here != LEAF]
    order = np.argsort(here)
    if np.unique(here).size < here.size:
        raise ValueError("a split asks for two categories")
    return here[order], codes[order]
