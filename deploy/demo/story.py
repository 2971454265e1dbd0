"""The story, act by act: who does what, what it costs, and what is refused. Everything goes over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import features_party.client
import labels_party.client
from deploy.demo.generator import DOMAIN
from deploy.demo.scene import AUDIENCE, ID, LABEL, Scene, plain, tampered
from shared.errors import Conflict
from shared.message.bundle import VerifiedMessage

POPULATION = "shop-clicks"
MECHANISM_NAMES = {"rr-on-bins": "RR-on-Bins", "one-bit": "one bit", "discrete-laplace": "discrete Laplace"}


@dataclass(frozen=True)
class Outcome:
    """What the acts leave for the comparison and the results."""

    table: str
    release: str
    message: VerifiedMessage
    model: str
    predictions: npt.NDArray[np.float64]
    budget_left: str
    refusals: dict[str, str]


def tell(scene: Scene) -> Outcome:
    """All acts up to the publisher's first model. Raises whatever a service refuses that it should not."""
    batch, table = prepare(scene)
    label_day(scene, batch)
    look_ahead(scene)
    release = publish(scene, batch)
    over_budget = ask_for_more(scene, batch)
    message = receive(scene, release)
    forged = tamper(scene)
    model, predictions = train(scene, table, release)
    return Outcome(
        table=table,
        release=release,
        message=message,
        model=model,
        predictions=predictions,
        budget_left=scene.advertiser.left(scene.name(POPULATION)),
        refusals={"over_budget": over_budget, "tampered": forged},
    )


def prepare(scene: Scene) -> tuple[str, str]:
    """Population and id list: what is agreed before any label counts. Returns batch and feature table."""
    t, o = scene.teller, scene.options
    t.step("Advertiser", "declares a population")
    batch = scene.advertiser.open(scene.name(POPULATION), scene.name(LABEL), DOMAIN, str(o.lifetime), AUDIENCE)
    t.say(
        f"'{scene.name(POPULATION)}': label {scene.name(LABEL)}, public domain {DOMAIN} euros (larger sums are "
        f"clipped), for '{AUDIENCE}' only, lifetime budget ε = {plain(o.lifetime)} per click."
    )
    t.step("Publisher", "uploads features at home, sends its click ids across")
    with t.bar("uploading features"):
        table = scene.publisher.upload(scene.clicks.features, ID)
        listed = scene.publisher.send_ids(table, batch)
    t.say(
        f"{listed:,} ids are fixed before any label counts. The {scene.clicks.features.num_columns - 1} feature "
        "columns never leave the publisher."
    )
    return batch, table


def label_day(scene: Scene, batch: str) -> None:
    """Labels in chunks, then the seal."""
    t, n = scene.teller, len(scene.clicks)
    t.step("Advertiser", "sends every click's revenue to its own labels party")
    with t.bar("sending labels") as advance:
        sent = scene.advertiser.send(batch, scene.ids, scene.clicks.revenue, lambda done: advance(done / n))
    t.say(f"{sent:,} labels in chunks, stored masked. A second label for an id would be refused, whatever it said.")
    scene.advertiser.owner.seal(batch)
    t.say("The batch is sealed: from now on nothing in it changes.")


def look_ahead(scene: Scene) -> None:
    """A plan touches no label."""
    t, o = scene.teller, scene.options
    t.step("Advertiser", f"asks what ε = {plain(o.epsilon)} would give")
    plan = scene.advertiser.owner.plan(scene.name(POPULATION), str(o.epsilon), len(scene.clicks))
    for row in plan["mechanisms"]:
        split = row["epsilon"]
        outputs = "1 output" if row["outputs"] == 1 else f"{row['outputs']} outputs"
        t.show(
            f"{MECHANISM_NAMES.get(row['mechanism'], row['mechanism']):<17} {outputs:>11}   "
            f"ε = {plain(split['prior'])} prior + {plain(split['randomize'])} randomize"
        )
    t.say(f"A plan reads no label, so it costs nothing. Its prior: {plan['prior']}.")


def publish(scene: Scene, batch: str) -> str:
    """Charge first, then draw once. Returns the release."""
    t, o = scene.teller, scene.options
    t.step("Advertiser", f"releases the batch with RR-on-Bins at ε = {plain(o.epsilon)}")
    asked = scene.advertiser.owner.release(batch, str(o.epsilon), mechanism="rr-on-bins")
    split = asked["epsilon"]
    t.say(
        f"The ledger is charged before anything is drawn: {plain(split['prior'])} for a private prior, "
        f"{plain(split['randomize'])} for the labels."
    )
    with t.bar("drawing"):
        done = scene.advertiser.owner.wait(str(asked["id"]))
    size = sum(int(f["bytes"]) for f in done["files"]) / 1000
    left = scene.advertiser.left(scene.name(POPULATION))
    t.say(
        f"Release {done['id']} is drawn once, signed and stored ({size:,.0f} kB); "
        f"ε = {plain(left)} of {plain(o.lifetime)} is left."
    )
    return str(done["id"])


def ask_for_more(scene: Scene, batch: str) -> str:
    """The refusal that the budget is there for. Returns its text."""
    t, o = scene.teller, scene.options
    t.step("Advertiser", f"asks for another ε = {plain(o.too_much)} on the same clicks")
    try:
        scene.advertiser.owner.release(batch, str(o.too_much), additional_release=True)
    except labels_party.client.RemoteProblem as refused:
        if refused.problem_code != "budget-exceeded":
            raise
        t.say(f"Refused ({refused.problem_code}): {refused.detail}")
        return refused.detail
    raise Conflict("The labels party released more than its budget allows; please report this.")


def receive(scene: Scene, release: str) -> VerifiedMessage:
    """Pull over HTTP; the service verifies and accounts, then a copy goes to the folder."""
    t = scene.teller
    t.step("Publisher", "pulls the message and verifies it with the pinned key")
    with t.bar("pulling"):
        accepted = scene.publisher.pull(release)
        message = scene.fetch(release, scene.folder.message)
    split = accepted["epsilon"]
    t.say(
        f"Signature, audience and every byte are right: {accepted['n']:,} rows of click id and one of "
        f"{accepted['outputs']} bins. The publisher's own audit store now says ε = {plain(split['total'])} = "
        f"{plain(split['prior'])} + {plain(split['randomize'])}."
    )
    return message


def tamper(scene: Scene) -> str:
    """One flipped bit. Returns the refusal."""
    t = scene.teller
    t.step("Somebody", "flips one bit of the message on its way")
    try:
        scene.publisher.service.upload_message(tampered(scene.folder.message))
    except features_party.client.RemoteProblem as refused:
        if refused.problem_code != "digest-mismatch":
            raise
        t.say(f"Refused ({refused.problem_code}): {refused.detail}")
        return refused.detail
    raise Conflict("The features party accepted a tampered message; please report this.")


def train(scene: Scene, table: str, release: str) -> tuple[str, npt.NDArray[np.float64]]:
    """Join, correct, train, predict. Returns the model and its predictions for the held-out clicks."""
    t = scene.teller
    t.step("Publisher", "trains on its features and the privatized labels")
    training = scene.publisher.order(table, release, "auto")
    with t.bar("training") as advance:
        model = scene.publisher.wait(training, advance)
    card = scene.publisher.card(model)
    correction = card["messages"][0]["correction"]["applied"]
    t.say(
        f"Model {model}, correction '{correction}': these {card['capacity']['rows']:,} privatized labels say as much "
        f"as {card['capacity']['effective_rows']:,.0f} true ones, and the model is sized for that."
    )
    with t.bar("predicting"):
        predictions = scene.publisher.predict(model, scene.held_out.features.drop_columns([ID]))
    t.say(
        f"It predicts {len(predictions):,} later clicks: {np.min(predictions):.0f} to {np.max(predictions):.0f} euros, "
        f"{np.mean(predictions):.0f} on average."
    )
    return model, predictions
