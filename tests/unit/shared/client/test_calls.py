"""Every call of both parties' clients, in both flavours: one declaration, the same signature and docstring."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest

import features_party.client.paths
from features_party.client import AsyncFeaturesPartyClient, FeaturesPartyClient
from features_party.receive.labels_service import LabelsService
from label_dp import errors
from label_dp.client import labels_paths
from label_dp.client.asking import Asking
from label_dp.client.declared import Feed, declared
from label_dp.companions.kinds.linear_model import LinearModel
from label_dp.companions.kinds.median import Median
from label_dp.companions.kinds.rectangle import Rectangle
from label_dp.documents.registry import KINDS
from label_dp.schemas.calibration import Allowance, Calibration
from label_dp.schemas.filters import PopulationFilter
from label_dp.schemas.population import Batch, People, Population, Schedule
from label_dp.schemas.predictor import Predictor
from label_dp.schemas.release import Release
from label_dp.schemas.sums import GroupSums
from label_dp.schemas.training import Training
from label_dp.schemas.webhook import Webhook
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from labels_party.client.answers import SumsOf
from labels_party.client.releases import PlanOf
from tests.support.features_api import running
from tests.support.labels import LabelsParty
from tests.support.messages import Sender

PAIRS = ((LabelsPartyClient, AsyncLabelsPartyClient), (FeaturesPartyClient, AsyncFeaturesPartyClient))
CALLS = [
    pytest.param(blocking, awaited, name, declaration, id=f"{blocking.__name__}.{name}")
    for blocking, awaited in PAIRS
    for name, declaration in declared(blocking.__mro__[1]).items()
]
LABELS = """
    add_labels allow_calibrations allow_sums answer answer_document answers approve audit_export batch batches
    budget calibrate calibration_allowance cancel create_people create_population create_predictor create_webhook
    decide decline delete_labels delete_webhook discard ensure_population erase erase_people event_counts
    linear_model manifest median message_file open_batch people people_budget plan plan_linear_model
    plan_rectangle plan_sums population populations predict predictor predictors purge put_examples put_features
    rectangle release release_state releases reschedule retire_predictor seal send_events set_aside statement sums
    sums_allowance sums_of_table wait wait_answer wait_predictor webhooks
"""
FEATURES = """
    answer answer_document answers ask_calibration audit_events audit_export calibrate cancel card_text compare
    delete_model delete_table events export_model message messages model model_schema models pinned_keys predict
    predict_proba predict_quantiles predict_report pull pull_answer remove_alias send_ids set_alias table tables train
    train_and_wait training trainings upload_answer upload_message upload_table use_file wait
"""


def test_the_calls_are_these() -> None:
    """Nothing a program can ask for goes unseen."""
    assert sorted(declared(LabelsPartyClient.__mro__[1])) == LABELS.split()
    assert sorted(declared(FeaturesPartyClient.__mro__[1])) == FEATURES.split()
    assert declared(LabelsPartyClient) == declared(AsyncFeaturesPartyClient) == {}  # functions have their place


@pytest.mark.parametrize(("blocking", "awaited", "name", "declaration"), CALLS)
def test_both_flavours_have_what_was_declared(blocking: type, awaited: type, name: str, declaration: Any) -> None:
    one, other, wanted = getattr(blocking, name), getattr(awaited, name), inspect.signature(declaration.talk)
    assert inspect.isfunction(one)
    assert inspect.isfunction(other)
    assert inspect.signature(one).parameters == inspect.signature(other).parameters == wanted.parameters
    assert one.__doc__ == other.__doc__ == declaration.talk.__doc__
    assert len(one.__doc__) > 10
    assert not inspect.iscoroutinefunction(one)
    assert inspect.iscoroutinefunction(other) is not isinstance(declaration, Feed)
    value = inspect.signature(one).return_annotation
    assert "Conversation" not in value
    told = f"Async{value}" if isinstance(declaration, Feed) else value
    assert inspect.signature(other).return_annotation == told
    assert one.__qualname__ == f"{blocking.__name__}.{name}"


def test_help_shows_signatures_and_members() -> None:
    text = pydoc.render_doc(LabelsPartyClient, renderer=pydoc.plaintext)
    assert "seal(self, batch: 'str') -> 'Json'" in text
    assert "release(self, batch: 'str', epsilon: Union[str, int, float], *, mechanism: str = 'auto'" in text
    assert "prior_epsilon: auto, theorem7, or the ε that the prior may cost." in text
    assert "async seal(self, batch: 'str') -> 'Json'" in pydoc.render_doc(
        AsyncLabelsPartyClient, renderer=pydoc.plaintext
    )


ASKING = [p for p in CALLS if isinstance(p.values[3], Asking)]
SCHEMAS: dict[str, Any] = {
    "create_people": People,
    "create_population": Population,
    "ensure_population": Population,
    "create_webhook": Webhook,
    "open_batch": Batch,
    "plan": PlanOf,
    "reschedule": Schedule,
    "release": Release,
    "populations": PopulationFilter,
    "median": Median,
    "rectangle": Rectangle,
    "plan_rectangle": Rectangle,
    "linear_model": LinearModel,
    "plan_linear_model": LinearModel,
    "sums": GroupSums,
    "plan_sums": GroupSums,
    "sums_of_table": SumsOf,
    "allow_sums": Allowance,
    "create_predictor": Predictor,
    "calibrate": Calibration,
    "train": Training,
    "train_and_wait": Training,
}


@pytest.mark.parametrize(("blocking", "awaited", "name", "declaration"), ASKING)
def test_what_has_a_schema_has_its_members_as_keywords(
    blocking: type, awaited: type, name: str, declaration: Any
) -> None:
    schema = SCHEMAS.get(name)
    if schema is None:
        assert name == "allow_calibrations", f"`{name}` takes a schema: name it in SCHEMAS of this file"
        return
    for kind in (blocking, awaited):
        shown = inspect.signature(getattr(kind, name)).parameters
        for member, field in schema.model_fields.items():
            assert shown[member].annotation == get_type_hints(schema)[member]
            needed = shown[member].default is inspect.Parameter.empty
            assert needed is field.is_required()
            assert f"{member}: " in getattr(kind, name).__doc__ or field.description is None


class Sent:
    """What a client sends; everything is answered with {}."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        http = httpx.Client(transport=httpx.MockTransport(self.note))
        self.labels = LabelsPartyClient("http://x", "k", http=http)
        self.features = FeaturesPartyClient("http://x", "k", http=http)

    def note(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, json={})

    def last(self) -> tuple[str, str, bytes]:
        request = self.requests[-1]
        return request.method, request.url.path, request.content


@pytest.mark.parametrize(
    ("party", "name", "before", "members", "needed"),
    [
        ("labels", "create_population", (), {"name": "s", "label": "l", "domain": "0:1", "lifetime_epsilon": "2"}, 4),
        ("labels", "release", ("bat_1",), {"epsilon": "1", "mechanism": "one-bit", "clip": ["0", "2"]}, 1),
        ("labels", "open_batch", ("shop",), {"presence": "public", "release": Release(epsilon="1")}, 0),
        ("labels", "median", ("bat_1",), {"epsilon": 0.5, "method": "ranks"}, 1),
        ("features", "train", (), {"feature_table": "ft_1", "messages": ["rel_1"], "model": "linear"}, 2),
    ],
)
def test_members_an_instance_and_positional_members_are_one_request(
    party: str, name: str, before: tuple[str, ...], members: dict[str, Any], needed: int
) -> None:
    sent = Sent()
    method = getattr(getattr(sent, party), name)
    method(*before, **members)
    first = sent.last()
    method(*before, SCHEMAS[name](**members))
    assert sent.last() == first
    values = list(members.items())
    method(*before, *(value for _, value in values[:needed]), **dict(values[needed:]))
    assert sent.last() == first
    for member in members:
        assert member.encode() in first[2]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"epsilon": "1", "prior_method": "guess"}, "The member 'prior_method' must be 'project' or 'clip'."),
        ({"epsilon": ["1"]}, "The member 'epsilon' must be"),
        ({"epsilon": "1", "unclipped": "yes"}, "The member 'unclipped' must be true or false."),
    ],
)
def test_what_breaks_a_schema_rule_is_refused_before_anything_is_sent(members: dict[str, Any], said: str) -> None:
    sent = Sent()
    with pytest.raises(errors.InvalidRequest) as refusal:
        sent.labels.release("bat_1", **members)
    assert said in refusal.value.detail
    for wrong in ({}, {"epsilon": "1", "epsilom": "1"}):
        with pytest.raises(TypeError, match="epsilo"):
            sent.labels.release("bat_1", **wrong)
    assert sent.requests == []


def names(table: Any) -> list[str]:
    return [value for name, value in vars(table).items() if name.isupper() and isinstance(value, str)]


def routes(app: Any) -> set[str]:
    """The paths of an application below /v1, with {} for every part that is a parameter."""
    found = (path.removeprefix("/v1/").split("/") for path in app.openapi()["paths"])
    return {"/".join("{}" if part.startswith("{") else part for part in parts) for parts in found}


def test_the_services_have_all_paths_that_clients_call(tmp_path: Path) -> None:
    (tmp_path / "features").mkdir()
    asked = {f"batches/{{}}/{kind.name}s" for kind in KINDS.values() if kind.asks}
    with LabelsParty(tmp_path / "labels") as labels:
        assert {*names(labels_paths), *asked} - routes(labels.client().app) == set()
    with running(tmp_path / "features", Sender()) as api:
        assert set(names(features_party.client.paths)) - routes(api.app.app) == set()


def test_the_party_to_party_client_shares_what_is_published() -> None:
    for name in ("release_state", "manifest", "answer", "answer_document", "calibration_allowance"):
        shared = inspect.getattr_static(LabelsPartyClient.__mro__[1], name)
        assert inspect.getattr_static(LabelsService.__mro__[1], name) is shared
