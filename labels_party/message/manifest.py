"""Manifest of a finished draw, from plan, ledger and channel, never from labels."""

from __future__ import annotations

from typing import Any

from label_dp.documents.manifest import FileEntry, Manifest, MechanismChoice, PriorRef
from label_dp.domain import Domain
from labels_party.labels.batches import ID_LIST, Batch
from labels_party.message.clipping import describe
from labels_party.message.engine import MessageDraw
from labels_party.message.plan import ReleasePlan


def build_manifest(
    plan: ReleasePlan,
    drawn: MessageDraw,
    entries: list[FileEntry],
    batch: Batch,
    public: Domain,
    members: dict[str, Any],
) -> Manifest:
    """Build the unsigned manifest. `public` is the domain that the owner declared; `members` are common to all kinds of
    documents."""
    clipping = describe(plan.clip_quantiles, plan.split.clip, public, drawn.domain)
    return Manifest(
        **members | {"domain": drawn.domain},
        domain_source="declared public by the owner" if clipping is None else "bought with ε_clip",
        presence="id list given before labels counted" if batch.presence == ID_LIST else "declared public by the owner",
        mechanism=MechanismChoice(name=drawn.mechanism, why=drawn.why),
        loss=plan.loss_name,
        channel=drawn.channel.as_json(),
        expected_loss=None if drawn.expected_loss is None else repr(drawn.expected_loss),
        prior=PriorRef(
            source=plan.prior_source,  # type: ignore[arg-type]  # one of the plan's constants
            method=plan.prior_method,
            cells=None if plan.cells is None else min(len(plan.cells) - 1, drawn.domain.k),
            release=plan.carried_from,
        ),
        clipping=clipping,
        files=entries,
        **plan.stated,
    )
