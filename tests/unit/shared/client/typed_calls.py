"""What a type checker says of the clients: `make lint` runs mypy over this file, and nothing runs it.

A line with an `ignore` must be refused: one that is not is an unused ignore, which mypy refuses as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from features_party.client import AsyncFeaturesPartyClient, FeaturesPartyClient
from label_dp.schemas.release import Release
from label_dp.schemas.training import Training
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient

Json = dict[str, Any]


def blocking(labels: LabelsPartyClient, features: FeaturesPartyClient) -> None:
    assert_type(labels.batches("shop"), list[Json])
    assert_type(labels.audit_export(), bytes)
    assert_type(labels.seal(batch="bat_1"), Json)
    assert_type(labels.release("bat_1", epsilon=0.5, mechanism="one-bit"), Json)
    assert_type(labels.release("bat_1", Release(epsilon="1")), Json)
    assert_type(labels.create_population(name="s", label="l", domain=[0, 1.5], lifetime_epsilon="3"), Json)
    assert_type(labels.ensure_population(name="s", label="l", domain="0:1", lifetime_epsilon="3"), Json)
    assert_type(features.events("tr_1"), Iterator[Json])
    assert_type(features.train_and_wait(feature_table="ft_1", messages=["rel_1"], progress=True), str)
    labels.seal()  # type: ignore[call-arg]  # no batch
    labels.seal(7)  # type: ignore[arg-type]  # not a text
    labels.release("bat_1")  # type: ignore[call-overload]  # no ε
    labels.release("bat_1", epsilon="1", epsilom="1")  # type: ignore[call-overload]  # no such member
    labels.release("bat_1", epsilon="1", prior_method="guess")  # type: ignore[call-overload]  # no such method
    labels.release("bat_1", Training(feature_table="ft_1", messages=[]))  # type: ignore[call-overload]  # another schema
    labels.decide("bat_1", "upl_1", "drp")  # type: ignore[arg-type]  # no such decision
    features.export_model("m_1", "pickle")  # type: ignore[arg-type]  # no such format
    features.trainings(state="done")  # type: ignore[arg-type]  # no such state
    labels.predictor("prd_1").lower()  # type: ignore[attr-defined]  # not a text


async def awaited(labels: AsyncLabelsPartyClient, features: AsyncFeaturesPartyClient) -> None:
    assert_type(await labels.batches("shop"), list[Json])
    assert_type(await labels.release("bat_1", epsilon="1"), Json)
    assert_type(await labels.release("bat_1", Release(epsilon="1")), Json)
    assert_type(features.events("tr_1"), AsyncIterator[Json])
    assert_type(await features.train_and_wait(feature_table="ft_1", messages=["rel_1"]), str)
    labels.batches("shop").append({})  # type: ignore[attr-defined]  # not awaited
    await labels.release("bat_1", epsilon=["1"])  # type: ignore[call-overload]  # not a number
