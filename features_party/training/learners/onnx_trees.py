"""XGBoost's trees as the attributes of ONNX's TreeEnsembleRegressor."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from label_dp.errors import InvalidFile
from label_dp.schemas.json_types import JsonObject

LEAF = -1


def tree_attributes(document: Any, classes: int = 1) -> JsonObject:
    """Return the attributes for one score, or for one of each of `classes`, which start at 0.

    As in XGBoost, a number below its threshold goes left, and the category of the split goes right; missing goes to the
    split's default. Raises InvalidFile for a split over a set of categories, which this project does not train.
    """
    data = document["learner"]
    base = json.loads(str(data["learner_model_param"]["base_score"]))
    attributes: dict[str, list[Any]] = {name: [] for name in NODE} | {name: [] for name in TARGET}
    every = data["gradient_booster"]["model"]["trees"]
    for number, tree in enumerate(every):
        _add(attributes, number, tree, number % classes)
    if not every:
        _leaf(attributes, 0, 0, 0.0)
    return {
        "n_targets": classes,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "base_values": [float(base[0] if isinstance(base, list) else base)] * classes,
        **attributes,
    }


NODE = (
    "nodes_treeids",
    "nodes_nodeids",
    "nodes_featureids",
    "nodes_modes",
    "nodes_values",
    "nodes_truenodeids",
    "nodes_falsenodeids",
    "nodes_missing_value_tracks_true",
)
TARGET = ("target_treeids", "target_nodeids", "target_ids", "target_weights")


def _node(attributes: dict[str, list[Any]], *values: Any) -> None:
    for name, value in zip(NODE, values, strict=True):
        attributes[name].append(value)


def _leaf(attributes: dict[str, list[Any]], tree: int, node: int, weight: float, target: int = 0) -> None:
    _node(attributes, tree, node, 0, "LEAF", 0.0, 0, 0, 0)
    for name, value in zip(TARGET, (tree, node, target, weight), strict=True):
        attributes[name].append(value)


def _add(attributes: dict[str, list[Any]], number: int, tree: dict[str, Any], target: int) -> None:
    left, right, values = tree["left_children"], tree["right_children"], tree["split_conditions"]
    starts, sizes = tree["categories_segments"], tree["categories_sizes"]
    category = {
        node: tree["categories"][start : start + size]
        for node, start, size in zip(tree["categories_nodes"], starts, sizes, strict=True)
    }
    # pruned nodes stay in the arrays: nodes reachable from the root are taken and renumbered
    order, at = [0], 0
    while at < len(order):
        node = order[at]
        at += 1
        if left[node] != LEAF:
            order += [left[node], right[node]]
    place = {node: index for index, node in enumerate(order)}
    for index, node in enumerate(order):
        if left[node] == LEAF:
            _leaf(attributes, number, index, float(np.float32(values[node])), target)
            continue
        feature, goes_left = int(tree["split_indices"][node]), int(tree["default_left"][node])
        down = place[left[node]], place[right[node]]
        if node in category:
            if len(category[node]) != 1:
                raise InvalidFile("The model splits on sets of categories, which the ONNX export does not know.")
            value = float(category[node][0])
            _node(attributes, number, index, feature, "BRANCH_EQ", value, down[1], down[0], 1 - goes_left)
        else:
            threshold = float(np.float32(values[node]))
            _node(attributes, number, index, feature, "BRANCH_LT", threshold, *down, goes_left)
