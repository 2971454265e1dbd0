"""The story, act by act: who acts, at which cost, and what is refused. Everything goes over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deploy.demo.clicks import DOMAIN
from deploy.demo.scene import AUDIENCE, ID, LABEL, Scene, plain
from shared.documents.bundle import Bundle, VerifiedMessage
from shared.errors import Conflict, RemoteProblem
from shared.privacy import Epsilon

POPULATION = "shop-clicks"


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
    release = publish(scene, batch)
    over_budget = ask_for_more(scene, batch)
    message = receive(scene, release)
    forged = tamper(scene)
    model, predictions = train(scene, table, release)
    refusals = {"over_budget": over_budget, "tampered": forged}
    return Outcome(table, release, message, model, predictions, scene.left(scene.name(POPULATION)), refusals)


def prepare(scene: Scene) -> tuple[str, str]:
    """Population, id list, labels, seal. Returns batch and feature table."""
    t, population = scene.teller, scene.name(POPULATION)
    t.step("Advertiser", "declares a population")
    batch = scene.open(population, scene.name(LABEL))
    t.say(
        f"'{population}': label {scene.name(LABEL)}, public domain {DOMAIN} euros (larger sums are clipped), for "
        f"'{AUDIENCE}' only. The lifetime budget is ε = {scene.lifetime} per click."
    )
    t.step("Publisher", "uploads features at home, sends its click ids across")
    with t.bar("uploading features"):
        table = str(scene.trainer.upload_table(scene.clicks.features, ID, "clicks")["id"])
        listed = scene.trainer.send_ids(table, scene.access.labels_url, batch, scene.access.reader)["ids"]
    columns = scene.clicks.features.num_columns - 1
    t.say(f"{listed:,} ids are fixed before any label counts. The {columns} feature columns never leave the publisher.")
    t.step("Advertiser", "sends every click's revenue to its own labels party")
    with t.bar("sending labels") as advance:
        sent = scene.send_labels(batch, advance)
    t.say(f"{sent:,} labels in chunks, stored masked. The batch is sealed: from now on nothing in it changes.")
    return batch, table


def publish(scene: Scene, batch: str) -> str:
    """Look ahead; charge first, then draw once. Returns the release."""
    t, population = scene.teller, scene.name(POPULATION)
    t.step("Advertiser", f"asks for a plan at ε = {plain(scene.epsilon)}")
    plan = scene.owner.plan(population, epsilon=str(scene.epsilon), n=len(scene.clicks))
    t.say(
        f"It compares {len(plan['mechanisms'])} designs and recommends '{plan['recommendations'][0]['mechanism']}'. It "
        "reads no label, so it costs nothing. The advertiser takes the mechanism of the paper first."
    )
    t.step("Advertiser", f"releases the batch with RR-on-Bins at ε = {plain(scene.epsilon)}")
    with t.bar("drawing"):
        done = scene.owner.wait(
            str(scene.owner.release(batch, epsilon=str(scene.epsilon), mechanism="rr-on-bins")["id"])
        )
    split, size = done["epsilon"], sum(int(f["bytes"]) for f in done["files"]) / 1000
    t.say(
        f"The ledger is charged before anything is drawn: {plain(split['prior'])} for a private prior, "
        f"{plain(split['randomize'])} for the labels. Release {done['id']} is drawn once, signed and stored "
        f"({size:,.0f} kB). ε = {scene.left(population)} is left."
    )
    return str(done["id"])


def ask_for_more(scene: Scene, batch: str) -> str:
    """The refusal that the budget is there for. Returns its text."""
    too_much = str(Epsilon(scene.epsilon.nano * 3 // 2))
    scene.teller.step("Advertiser", f"asks for another ε = {plain(too_much)} on the same clicks")
    try:
        scene.owner.release(batch, epsilon=too_much, additional_release=True)
    except RemoteProblem as refused:
        return _refused(scene, refused, "budget-exceeded")
    raise Conflict("The labels party released more than its budget allows; please report this.")


def receive(scene: Scene, release: str) -> VerifiedMessage:
    """Pull over HTTP; the service verifies and accounts, then a copy goes to the folder."""
    t = scene.teller
    t.step("Publisher", "pulls the message and verifies it with the pinned key")
    with t.bar("pulling"):
        accepted = scene.trainer.pull(scene.access.labels_url, release, scene.access.reader)["message"]
        message = scene.fetch(release, scene.folder / "message.parquet")
    t.say(
        f"Signature, audience and every byte are right: {accepted['n']:,} rows of click id and one of "
        f"{accepted['outputs']} bins. The publisher's own audit store now holds ε = "
        f"{plain(accepted['epsilon']['total'])} too, and a signed receipt goes back."
    )
    return message


def tamper(scene: Scene) -> str:
    """One flipped bit. Returns the refusal."""
    scene.teller.step("Somebody", "flips one bit of the message on its way")
    path = scene.folder / "message.parquet"
    rows = bytearray(path.read_bytes())
    rows[len(rows) // 2] ^= 1
    try:
        scene.trainer.upload_message({"manifest.dsse.json": Bundle(path).envelope(), path.name: bytes(rows)})
    except RemoteProblem as refused:
        return _refused(scene, refused, "digest-mismatch")
    raise Conflict("The features party accepted a tampered message; please report this.")


def _refused(scene: Scene, refused: RemoteProblem, code: str) -> str:
    if refused.problem_code != code:
        raise refused
    scene.teller.say(f"Refused ({code}): {refused.detail}")
    return refused.detail


def train(scene: Scene, table: str, release: str) -> tuple[str, npt.NDArray[np.float64]]:
    """Join, correct, train, predict. Returns the model and its predictions for the held-out clicks."""
    scene.teller.step("Publisher", "trains on its features and the privatized labels")
    model, predictions = scene.trained(scene.order(table, release, "auto"), "training")
    card = scene.trainer.model(model)["card"]
    rows, worth = card["capacity"]["rows"], card["capacity"]["effective_rows"]
    scene.teller.say(
        f"The manifest alone corrects for the noise ('{card['messages'][0]['correction']['applied']}'), at no ε. These "
        f"{rows:,} privatized labels say as much as {worth:,.0f} true ones, and the model has the size for that. It "
        f"predicts {len(predictions):,} later clicks: {np.mean(predictions):.0f} euros on average."
    )
    return model, predictions
