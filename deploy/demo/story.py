"""The story, from top to bottom: who acts, by which call, at which cost, and what is refused. All of it over HTTP."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.demo.clicks import DOMAIN, ID, LABEL, labels_of
from deploy.demo.folder import typed
from deploy.demo.services import execute, secret
from deploy.demo.telling import CODE, WIDTH, Teller, plain
from features_party.client import FeaturesPartyClient
from features_party.labels_service import LabelsService
from features_party.receive.pull import pull
from features_party.training.fitting import Examples, Recipe, fit
from labels_party.client import LabelsPartyClient
from shared.documents.bundle import Bundle
from shared.documents.signing import VerifyingKey
from shared.domain import Domain
from shared.errors import Conflict, RemoteProblem
from shared.privacy import Epsilon
from shared.service.layout import lines

POPULATION, AUDIENCE = "shop-clicks", "features-party"
NO_PRIVACY = {"mechanism": "no privacy", "correction": "none", "label_mse": 0.0, "gain": 1.0}
VERIFIER = Path(__file__).parents[1] / "verify_standalone"
OTHERS = {"one bit": "one-bit", "discrete Laplace": "discrete-laplace", "auto": "auto"}
PREDICT_ROWS = 50_000
Json = dict[str, Any]


class Story:
    """`owner` and `backend` are the advertiser's callers, `trainer` and `auditor` the publisher's; their API keys are
    in `keys`. `tag` keeps names apart where the services outlive the demo."""

    def __init__(
        self, t: Teller, folder: Path, epsilon: Epsilon, urls: tuple[str, str], keys: Path, http: httpx.Client, tag: str
    ) -> None:
        self.t, self.folder, self.keys, self.tag = t, folder, keys, tag
        self.epsilon, self.too_much, self.lifetime = (plain(Epsilon(epsilon.nano * n // 2)) for n in (2, 3, 4))
        self.labels_url, features_url = urls
        self.owner = t.shows(LabelsPartyClient(self.labels_url, secret(keys, "owner.key"), http=http), "owner")
        self.backend = t.shows(LabelsPartyClient(self.labels_url, secret(keys, "ingest.key"), http=http), "backend")
        self.trainer = t.shows(FeaturesPartyClient(features_url, secret(keys, "trainer.key"), http=http), "trainer")
        self.auditor = t.shows(FeaturesPartyClient(features_url, secret(keys, "auditor.key"), http=http), "auditor")

    def tell(self, clicks: pa.Table, later: pa.Table) -> Json:
        """All steps between the start and the audits; returns the results. Models are tested on `later` clicks."""
        t, epsilon = self.t, self.epsilon
        self.revenue, self.features = clicks.select([ID, LABEL]), clicks.drop_columns([LABEL])
        self.later, self.truth = later.drop_columns([ID, LABEL]), labels_of(later)
        t.names |= {id(self.features): "features", id(self.revenue): "revenue"}

        t.step("Publisher", "uploads its features to its own service")
        self.table = str(self.trainer.upload_table(self.features, ID)["id"])
        t.say(f"{self.features.num_columns - 1} columns a click. They never leave the publisher.")

        batch = self.fill(POPULATION, LABEL)

        t.step("Advertiser", f"asks what ε = {epsilon} would give")
        plan = self.owner.plan(POPULATION + self.tag, epsilon=epsilon, n=len(clicks))
        t.say(
            f"It compares {len(plan['mechanisms'])} designs and recommends '{plan['recommendations'][0]['mechanism']}'."
            " It reads no label, so it costs no ε. The advertiser takes the mechanism of the paper first."
        )

        release = self.publish(batch, "rr-on-bins")
        left = plain(self.owner.budget(POPULATION + self.tag)["batches"][0]["epsilon_left"])
        t.say(f"ε = {left} is left per click.")

        t.step("Advertiser", f"asks for another ε = {self.too_much} on the same clicks")
        over_budget = self.refused(
            "budget-exceeded", lambda: self.owner.release(batch, epsilon=self.too_much, additional_release=True)
        )

        path = self.folder / "message.parquet"
        message = self.receive(release, path)
        seen = pq.read_table(path).slice(0, 4).to_pylist()
        truth = dict(zip(*(self.revenue[name].to_pylist() for name in (ID, LABEL)), strict=True))
        rows = [[s["example_id"], f"{s['label']:.2f}", f"{truth[s['example_id']]:.2f}"] for s in seen]
        t.say(f"Of a click's revenue it sees one of {message['outputs']} values, drawn so that any may be wrong:")
        t.show("\n".join(lines("", ["click", "in the message", "true revenue, at home"], rows, WIDTH)))

        t.step("Somebody", "flips one bit of the message on its way")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        files = {"manifest.dsse.json": Bundle(path).envelope(), path.name: bytes(content)}
        tampered = self.refused("digest-mismatch", lambda: self.trainer.upload_message(files))

        self.constant, self.best = self.mse(float(labels_of(clicks).mean())), self.without_privacy(clicks)
        t.step("Publisher", "trains on its features and the privatized labels")
        first = self.learn("RR-on-Bins, corrected", release, message)
        t.say(f"The manifest alone corrects for the noise, at no ε: {first['worth']}.")
        t.say(
            f"Squared error on {len(later):,} later clicks: {first['test_mse']:,.0f}. The mean for every click has "
            f"{self.constant:,.0f}, the same model on true labels {self.best:,.0f}: {first['gain']:.0%} of the gain is "
            "there. Only a demo can say so, because it made up the truth."
        )

        t.step("Both", f"repeat it with other mechanisms, also at ε = {epsilon}")
        t.say(
            "Each gets a label name and a population of its own, so the ledger above stays as it is. Do this with "
            "made-up clicks only: of real ones, every further message reveals more, and its ε adds to the first."
        )
        with t.bar("repeating it") as advance:
            table = [self.learn("RR-on-Bins, uncorrected", release, message, "none"), first]
            for done, (name, mechanism) in enumerate(OTHERS.items(), 1):
                advance(done / (len(OTHERS) + 1))
                other = self.publish(self.fill(f"demo-{mechanism}", f"demo-{mechanism}"), mechanism)
                copy = self.folder / "comparison" / f"{mechanism}.parquet"
                table.append(self.learn(name, other, self.receive(other, copy)))
        table.append(first | dict.fromkeys(first) | NO_PRIVACY | {"test_mse": self.best})

        t.step("Auditor", "checks the message and both audit stores")
        (self.folder / "labels-party-audit.dsse.json").write_bytes(self.owner.audit_export())
        (self.folder / "features-party-audit.dsse.json").write_bytes(self.auditor.audit_export())
        (self.folder / "statement.html").write_text(self.owner.statement(release), encoding="utf-8")
        self.verify("message", "message.parquet", "labels-party")
        self.verify("audit", "labels-party-audit.dsse.json", "labels-party")
        self.verify("audit", "features-party-audit.dsse.json", "features-party")
        return {
            "simulated": True,
            "clicks": len(clicks),
            "held_out_clicks": len(later),
            "epsilon": epsilon,
            "epsilon_lifetime": self.lifetime,
            "domain": DOMAIN,
            "population": POPULATION + self.tag,
            "release": release,
            "model": first["model"],
            "budget_left": left,
            "refusals": {"over_budget": over_budget, "tampered": tampered},
            "constant_mse": self.constant,
            "table": table,
        }

    def fill(self, population: str, label: str) -> str:
        """A population with one sealed batch; returns the batch."""
        t, population = self.t, population + self.tag
        t.step("Advertiser", "declares a population: label, public domain, lifetime ε")
        self.owner.create_population(
            name=population, label=label + self.tag, domain=DOMAIN, lifetime_epsilon=self.lifetime, audiences=[AUDIENCE]
        )
        batch = str(self.owner.open_batch(population)["id"])
        t.say(f"ε = {self.lifetime} is left per click. Sums outside {DOMAIN} euros will be clipped.")

        t.step("Publisher", "sends its click ids across")
        listed = self.trainer.send_ids(self.table, self.labels_url, batch)["ids"]
        t.say(f"{listed:,} ids are fixed before any label counts.")

        t.step("Advertiser", "sends every click's revenue to its own labels party")
        sent = self.backend.add_labels(batch, self.revenue, id_column=ID, label_column=LABEL)
        self.owner.seal(batch)
        t.say(f"{sent:,} labels, stored masked. The batch is sealed: from now on nothing in it changes.")
        return batch

    def publish(self, batch: str, mechanism: str) -> str:
        """Charge, draw, sign; returns the release."""
        self.t.step("Advertiser", "releases: the ledger is charged, then each label drawn once")
        release = str(self.owner.release(batch, epsilon=self.epsilon, mechanism=mechanism)["id"])
        done = self.owner.wait(release)
        split, size = done["epsilon"], sum(int(file["bytes"]) for file in done["files"]) / 1000
        self.t.say(
            f"ε = {self.epsilon} is spent: {plain(split['prior'])} on a private prior, {plain(split['randomize'])} on "
            f"the labels. The message is signed and stored ({size:,.0f} kB)."
        )
        return release

    def refused(self, code: str, call: Callable[[], Json]) -> str:
        """The text of a refusal that has to come."""
        try:
            call()
        except RemoteProblem as refused:
            if refused.problem_code != code:
                raise
            self.t.say(f"Refused ({code}): {refused.detail}")
            return refused.detail
        raise Conflict("A service did what it has to refuse; please report this.")

    def receive(self, release: str, out: Path) -> Json:
        """The publisher's service pulls, verifies and accounts; a copy goes to `out`. Returns what was accepted."""
        self.t.step("Publisher", "pulls the message, verifies it with the pinned key")
        accepted: Json = self.trainer.pull(self.labels_url, release)["message"]
        key = VerifyingKey.load(self.keys / "labels-party.pub")
        with LabelsService(self.labels_url, secret(self.keys, "owner.key"), transport=httpx.HTTPTransport()) as service:
            pull(service, release, lambda _: key, AUDIENCE, out, lambda _what, _share: None)
        self.t.say(
            "Signature, audience and every byte are right. The publisher's own audit store holds "
            f"ε = {plain(accepted['epsilon']['total'])} too, and a signed receipt goes back."
        )
        return accepted

    def learn(self, name: str, release: str, message: Json, correction: Literal["none", "auto"] = "auto") -> Json:
        """Train trees alone, which is quick, and predict; a line of the table, by the model's card and the truth."""
        model = self.trainer.train_and_wait(
            feature_table=self.table, messages=[release], model="trees", correction=correction
        )
        card = self.trainer.model(model)["card"]
        starts = range(0, len(self.later), PREDICT_ROWS)
        parts = [self.trainer.predict(model, self.later.slice(start, PREDICT_ROWS)) for start in starts]
        error, learned = self.mse(np.concatenate(parts)), card["messages"][0]
        return {
            "mechanism": name,
            "correction": learned["correction"]["applied"],
            "release": release,
            "model": model,
            "outputs": message["outputs"],
            "epsilon_prior": plain(learned["epsilon"]["prior"]),
            "epsilon_randomize": plain(learned["epsilon"]["randomize"]),
            "label_mse": learned["correction"]["noise_variance"] + learned["correction"]["residual_bias"] ** 2,
            "worth": card["capacity"]["why"],
            "test_mse": error,
            "gain": (self.constant - error) / (self.constant - self.best),
        }

    def verify(self, what: str, file: str, party: str) -> None:
        """Have a file checked by code that is not the services'."""
        key = shutil.copyfile(self.keys / f"{party}.pub", self.folder / f"{party}.pub")
        words = (Path(sys.executable), VERIFIER, what, self.folder / file, "--key", key)
        self.t.show(typed(*words), CODE)
        said = execute(*map(str, words)).splitlines()[-4:]
        self.t.say("; ".join(line.strip() for line in said if len(line) < WIDTH))

    def mse(self, predictions: npt.NDArray[np.float64] | float) -> float:
        """Against the truth of the later clicks."""
        return float(np.mean((predictions - self.truth) ** 2))

    def without_privacy(self, clicks: pa.Table) -> float:
        """The error of the features party's own training code on true labels: no service offers that."""
        threads = min(os.cpu_count() or 1, 8)
        with self.t.bar("training on true labels") as advance:
            examples = Examples(clicks.drop_columns([ID, LABEL]), labels_of(clicks), domain=Domain.parse(DOMAIN))
            model, _ = fit(examples, Recipe("trees"), threads=threads, progress=lambda _what, share: advance(share))
        return self.mse(model.predict(self.later, threads=threads))
