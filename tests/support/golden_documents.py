"""An honest signed document of every kind, as its maker would write it: what mutations start from."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from label_dp.channels.base import Channel, N
from label_dp.channels.dense import DenseChannel
from label_dp.companions.kinds.linear_model import members
from label_dp.companions.kinds.prediction_methods import GRID, METHODS, AverageFacts, Stated
from label_dp.companions.kinds.prediction_methods import top as upper_end
from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.places import number_text, place_text
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.documents.answer import Answer, AnswerMechanism
from label_dp.documents.kind import REPLACE_ONE, WHOLE_EXAMPLE
from label_dp.documents.manifest import FileEntry, Manifest, MechanismChoice, PriorRef
from label_dp.documents.members import ChainHead, PopulationRef, Unit
from label_dp.documents.receipt import Receipt
from label_dp.domain import Domain
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.companions.kinds.linear_model import LinearModelKind
from labels_party.companions.kinds.own_features import Planned
from labels_party.companions.kinds.rectangle import RectangleKind
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support.asked import median_wish
from tests.support.asked import planned as plan_of
from tests.support.messages import laplace, one_bit, rr, staircase
from tests.support.unchecked import unchecked

Document = dict[str, Any]
KEY_ID = "ed25519:" + "0" * 64
HEAD = {"day": "2026-11-20", "digest": "cd" * 32}
POPULATION = PopulationRef(id="pop_1", name="shop", label="revenue €")
UNIT = Unit(kind="unit", column="person", max_examples=3, epsilon_per_unit="7.95", examples_beyond=0)  # 2.65 each
TEN = Domain.parse("0:10")
RULES = {
    "sum": {
        "data_set_id": "shop",
        "types": {"purchase": "+", "custom:return": "-"},
        "take": "sum",
        "currency": "EUR",
        "example_id": "user_data.ext.order",
        "other_currency": "leave-out",
        "window_days": 7,
        "mmt_only": "count",
    },
    "any": {
        "data_set_id": "shop",
        "types": {"purchase": "+"},
        "take": "any",
        "currency": None,
        "window_days": None,
        "example_id": "user_data.click_id",
        "other_currency": "refuse",
        "mmt_only": "leave-out",
    },
}


def documents(key_id: str = KEY_ID) -> dict[str, Document]:
    """By name: messages of every kind of channel, answers of every kind, shape, method and bound, and a receipt; they
    name the key that will sign them."""
    answers = [*_calibrations(), *_medians(), *_own_features(), *_predictions(), *_sums()]
    found = {name: document | {"key_id": key_id} for name, document in [*_messages(), *answers]}
    about = {"document_id": "rel_1", "document_digest": "ab" * 32, "labels_key_id": key_id, "audience": "me"}
    receipt = Receipt(**about, accepted="2026-11-20", position=1, previous="0" * 64, chain_head=ChainHead(**HEAD))
    return found | {"receipt: first": receipt.document()}


# --- messages ----------------------------------------------------------------------------------------------------


def _dense() -> DenseChannel:
    weights = np.full((TEN.k, 2), N // 2, dtype=np.uint64)
    weights[3:] += np.array([-(1 << 60), 1 << 60]).astype(np.uint64)
    return DenseChannel(domain=TEN, outputs=TEN.values[[0, -1]], weights=weights)


def _designed(name: str, domain: str = "0:10", **options: bool) -> Channel:
    return MECHANISMS[name].design(Domain.parse(domain), None, Epsilon.parse("2"), "squared", options)


def _messages() -> Iterator[tuple[str, Document]]:
    channels: dict[str, Channel] = {
        "bins": rr(),
        "listed": _listed(),
        "one bit": one_bit(clip=(2, 9)),
        "laplace": laplace("-1:1:0.25"),
        "staircase": staircase(),
        "dense": _dense(),
        "knots": MECHANISMS["unbiased"].design(TEN, np.full(11, 1 / 11), Epsilon.parse("2"), "squared", {}),
        "top labels": MECHANISMS["rr-with-prior"].design(TEN, np.full(11, 1 / 11), Epsilon.parse("2"), "squared", {}),
        "subsets": _designed("subset-selection"),
        "exponential": _designed("exponential", "0:6"),
        "noise": _designed("discrete-laplace", "0:6", unclipped=True),
    }
    for name, channel in channels.items():
        yield f"message: {name}", _manifest(channel)
    unit = _manifest(rr())
    yield "message: unit", unit | {"unit": UNIT.model_dump()}
    yield "message: lifetime δ", _manifest(rr()) | {"delta_spent": "0.0000004", "delta_lifetime": "0.00001"}
    for name, rule in RULES.items():
        yield f"message: events, {name}", _manifest(rr()) | {"population": POPULATION.model_dump() | {"events": rule}}
    bought = _manifest(rr(), clip="0.5")
    about = {"quantiles": ["0.9"], "bounds": ["10"], "epsilon": "0.5", "public_domain": {"range": "0:20:1"}}
    clipping = about | {"mechanism": "exponential mechanism on ranks"}
    yield "message: bounds", bought | {"domain_source": "bought with ε_clip", "clipping": clipping}


def _listed() -> Channel:
    domain = Domain.from_values(["-2.50", "0", "1.5", "10"])
    return MECHANISMS["rr-on-bins"].design(domain, np.full(4, 0.25), Epsilon.parse("2"), "squared", {})


def _manifest(channel: Channel, clip: str = "0") -> Document:
    split = EpsilonSplit(Epsilon.parse(clip), Epsilon.parse("0.01"), Epsilon.parse("2"))
    parts = [
        ("message", "part-0.parquet", 40),
        ("message", "part-1.parquet", 60),
        ("prior", "prior.parquet", channel.domain.k),
    ]
    return unchecked(
        Manifest,
        id="rel_1",
        batch="bat_1",
        population=POPULATION,
        audiences=["features-party", "second-party"],
        key_id=KEY_ID,
        created="2026-11-20",
        n=100,
        domain=channel.domain.as_json(),
        out_of_domain="clip",
        missing_label="0",
        presence="declared public by the owner",
        mechanism=MechanismChoice(name="test"),
        loss="squared",
        channel=channel.as_json(),
        expected_loss="1.25",
        prior=PriorRef(source="estimated", method="project", cells=11),
        epsilon=split.as_json(),
        epsilon_spent="2.51",
        epsilon_lifetime="10",
        chain_head=HEAD,
        files=[FileEntry(role=r, name=f, bytes=9, rows=k, sha256="ab" * 32) for r, f, k in parts],  # type: ignore[arg-type]  # texts of this file
    )


# --- answers -----------------------------------------------------------------------------------------------------


def _answer(kind: str, split: EpsilonSplit, parameters: Any, result: Any, **changes: Any) -> Document:
    given: dict[str, Any] = {
        "kind": kind,
        "id": "ans_1",
        "batch": "bat_1",
        "population": POPULATION,
        "audiences": ["features-party", "second-party"],
        "key_id": KEY_ID,
        "created": "2026-11-20",
        "n": 1000,
        "domain": TEN.as_json(),
        "out_of_domain": "clip",
        "missing_label": None,
        "parameters": parameters,
        "mechanism": AnswerMechanism(name="test", source="a paper", facts={"levels": 3, "bound": None}),
        "epsilon": split.as_json(),
        "epsilon_spent": str(split.total + Epsilon.parse("0.5")),
        "epsilon_lifetime": "10",
        "delta_spent": split.as_json()["delta"],
        "delta_lifetime": "0.00001",
        "chain_head": HEAD,
        "adjacency": REPLACE_ONE,
        "result": result,
        "salt": "5a" * 16,
    }
    return unchecked(Answer, **given | changes)


def _whole(epsilon: str) -> EpsilonSplit:
    return EpsilonSplit(ZERO, ZERO, Epsilon.parse(epsilon))


def _calibrations() -> Iterator[tuple[str, Document]]:
    one = MonotoneMap(100, np.array([30, 60]), np.array([1.0, 2.5, 7.0])).as_json()
    wide = MonotoneMap(ScoreGrid.parse("float32").size, np.array([1 << 31]), np.array([1e-7, 7.25])).as_json()
    two = MonotoneGrid((100, 10), (np.array([50]), np.array([3, 6])), np.array([[0, 1, 2.5], [0.5, 4, 9]])).as_json()
    knots = {"knots": 5, "steps": 4, "values": 9}
    shapes: dict[str, dict[str, Any]] = {
        "monotone": {"levels": 4},
        "pieces": {"pieces": 3, "cells": 20, "values": 8},
        "linear": {"pieces": 2} | knots,
        "lipschitz": {"lipschitz": "0.125"} | knots,
        "convex": knots,
        "concave": {},
        "bins": {"cells": 8},
    }
    for shape, options in shapes.items():
        loss = "squared" if shape == "bins" else "absolute"
        parameters = {"loss": loss, "shape": shape, "options": options, "scores": "0:10:100", "scores_2": None}
        yield f"calibration: {shape}", _answer("calibration", _whole("0.5"), parameters, {"map": one})
    medians = {"loss": "absolute", "shape": "bins", "options": {"cells": 8}, "scores": "0:10:100", "scores_2": None}
    yield "calibration: bins of medians", _answer("calibration", _whole("0.5"), medians, {"map": one})
    floats = {"loss": "squared", "shape": "monotone", "options": {}, "scores": "float32", "scores_2": None}
    yield "calibration: float32", _answer("calibration", _whole("0.5"), floats, {"map": wide})
    for shape in ("bins", "grid"):
        parameters = {"loss": "squared", "shape": shape, "options": {"cells": "4x3"}, "scores": "0:10:100"}
        parameters |= {"scores_2": "0:1:10"}
        yield f"calibration: {shape} of two", _answer("calibration", _whole("0.5"), parameters, {"map": two}, unit=UNIT)


def _medians() -> Iterator[tuple[str, Document]]:
    wide = Domain.parse("0:400:0.5")
    for name, domain, asked, delta, value in (
        ("ranks", TEN, "ranks", "0", Decimal(5)),
        ("slices of few values", TEN, "slices", "0", Decimal(5)),
        ("slices", wide, "slices", "0.000001", Decimal("30.5")),
        ("none", wide, "slices", "0.000001", None),
    ):
        wish = median_wish(epsilon="4", delta=delta, method=asked)
        split = wish.split(1000, domain.k)
        result = {"found": value is not None, "median": None if value is None else format(value, "f")}
        yield f"median: {name}", _answer("median", split, {"method": asked}, result, domain=domain.as_json())


NUMBERS = [{"name": "x", "range": [0, 10]}, {"name": "y", "range": [-1, "0.5"]}]
FEATURES = [*NUMBERS, {"name": "kind", "values": ["a", "b", "7"]}]
FOUR = [{"name": f"x{i}", "range": [0, 10]} for i in range(4)]


def _own_features() -> Iterator[tuple[str, Document]]:
    rectangles: dict[str, dict[str, Any]] = {
        "ranks": {"epsilon": "2"},
        "noisy": {"epsilon": "2", "delta": "0.00001", "bits": 7, "features": FOUR},
        "slices": {"epsilon": "16", "delta": "0.00001", "method": "slices"},
    }
    for name, options in rectangles.items():
        given: dict[str, Any] = {"threshold": "5", "features": NUMBERS}
        planned = plan_of(RectangleKind, TEN, 20_000, **(given | options))
        yield f"rectangle: {name}", _rectangle(planned, missing=False)
        if name == "slices":
            yield "rectangle: missing", _rectangle(planned, missing=True)
    for name, more in {
        "uniform": {},
        "easiest": {"rule": "easiest", "steps": 3},
        "advanced": {"rule": "hardest", "steps": 400, "minibatch": 50, "delta": "0.00001", "epsilon": "0.5"},
        "noisy": {"rule": "hardest", "steps": 50, "delta": "0.00001"},
    }.items():
        asked: dict[str, Any] = {"epsilon": "4", "features": FEATURES} | more
        planned = plan_of(LinearModelKind, TEN, 20_000, **asked)
        told = [
            {"weight": number_text(i / 8)} | member for i, member in enumerate(members(planned.parameters["features"]))
        ]
        result = {"constant": "-0.125", "weights": told}
        yield f"linear model: {name}", _example("linear-model", planned, result)


def _sums() -> Iterator[tuple[str, Document]]:
    by, values = [["device"], ["country", "device"]], {"device": ["app", "web"], "country": ["DE", "FR", None]}
    cells = {"one": ([[0], [1]], [12, 8]), "two": ([[0, 0], [1, 1], [2, 0]], [5, 8, 7])}
    for name, (first, shares) in {"of both": (0, ["0.25", "0.05"]), "of one": (1, ["0.3"])}.items():
        groupings = [
            {"cells": places, "n": n, "sums": [str(7 * i - 9) for i in range(len(n))]} for places, n in cells.values()
        ][first:]
        named = [
            {"name": of, "values": values[of]} for of in dict.fromkeys(of for columns in by[first:] for of in columns)
        ]
        parameters = {"by": by[first:], "epsilon": shares, "cells": [len(g["n"]) for g in groupings], "rows": 20}
        yield (
            f"sums: {name}",
            _answer(
                "sum", _whole("0.3"), parameters, {"columns": named, "groupings": groupings}, adjacency=REPLACE_ONE
            ),
        )


def _example(kind: str, planned: Planned, result: Any) -> Document:
    return _answer(
        kind, planned.split, planned.parameters, result, adjacency=WHOLE_EXAMPLE, n=20_000, epsilon_lifetime="40"
    )


def _rectangle(planned: Planned, *, missing: bool) -> Document:
    sides, levels = [], planned.parameters["levels"]
    for number, feature in enumerate(planned.parameters["features"]):
        ends = [None if missing and number == 1 else levels // 4, levels // 2]
        low, high = feature["range"]
        texts = [None if end is None else place_text(end, low, high, levels) for end in ends]
        sides.append({"name": feature["name"], "first": ends[0], "last": ends[1], "from": texts[0], "to": texts[1]})
    return _example("rectangle", planned, {"found": not missing, "sides": sides})


def _predictions() -> Iterator[tuple[str, Document]]:
    epsilon = Epsilon.parse("0.3")
    for name, method in METHODS.items():
        facts = _facts(method.facts, epsilon)
        top = upper_end(method.facts.model_validate(facts))
        share = Fraction(top // 3 if top > 1 else 1, top)
        parameters = {
            "predictor": "prd_1",
            "method": name,
            "query": {"x": "3.5", "kind": None},
            "threshold": "5" if method.classifies else None,
        }
        result = {"value": number_text(share if method.classifies else 10 * share)}
        mechanism = AnswerMechanism(name=name, source="a paper", facts=facts)
        found = _answer("prediction", _whole("0.3"), parameters, result, mechanism=mechanism)
        yield f"prediction: {name}", found | {"adjacency": method.adjacency}


def _facts(kind: type[Stated], epsilon: Epsilon) -> dict[str, Any]:
    """Those that a method of these facts states at ε."""
    step = Fraction(1, 7) if kind is AverageFacts else Fraction(12345, GRID)
    told: dict[str, Any] = {"parts": 7, "bound": 7, "noise": "discrete Laplace", "grid": GRID}
    told |= {"scale": number_text(step / epsilon.fraction), "stability": number_text(step)}
    return {name: told[name] for name in kind.model_fields}
