"""The story, from top to bottom: who acts, by which call, at which cost, and what is refused. All of it over HTTP."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.demo.clicks import DOMAIN, ID, LABEL, labels_of, shop_day
from deploy.demo.folder import typed
from deploy.demo.services import Service, execute, secret
from deploy.demo.shop import Shop
from deploy.demo.telling import CODE, WIDTH, Teller
from features_party.client import FeaturesPartyClient
from features_party.receive.labels_service import LabelsService
from features_party.receive.pull import pull
from features_party.training.fitting import Examples, Recipe, fit
from label_dp.cli.layout import lines
from label_dp.documents.bundle import Bundle
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import Domain
from label_dp.errors import Conflict, RemoteProblem
from label_dp.privacy import Epsilon
from label_dp.quota import processors
from label_dp.schemas.events import BECAME
from labels_party.client import LabelsPartyClient

POPULATION, AUDIENCE = "shop-clicks", "features-party"
OTHERS = {"one bit": "one-bit", "discrete Laplace": "discrete-laplace", "auto": "auto"}
EVENTS = {"types": {"purchase": "+", "refund": "-"}, "take": "sum", "currency": "EUR"}
NO_PRIVACY = {"mechanism": "no privacy", "label_mse": 0.0, "gain": 1.0}
VERIFIER = Path(__file__).parents[1] / "verify_standalone"
PREDICT_ROWS = 50_000
Json = dict[str, Any]


class Story:
    """`owner` and `backend` are the advertiser's callers, `trainer` and `auditor` the publisher's; their API keys are
    in `keys`. `tag` keeps names apart where the services outlive the demo."""

    def __init__(
        self, t: Teller, folder: Path, urls: tuple[str, str], keys: Path, http: httpx.Client, tag: str
    ) -> None:
        self.t, self.folder, self.keys, self.tag, (self.labels_url, features_url) = t, folder, keys, tag, urls
        self.owner = t.shows(LabelsPartyClient(self.labels_url, secret(keys, "owner.key"), http=http), "owner")
        self.backend = t.shows(LabelsPartyClient(self.labels_url, secret(keys, "ingest.key"), http=http), "backend")
        self.trainer = t.shows(FeaturesPartyClient(features_url, secret(keys, "trainer.key"), http=http), "trainer")
        self.auditor = t.shows(FeaturesPartyClient(features_url, secret(keys, "auditor.key"), http=http), "auditor")
        self.events_url = f"{self.labels_url.rstrip('/')}/v1/events"
        self.shop = Shop(f"shop-orders{tag}", {self.events_url: secret(keys, "ingest.key")}, http)

    def tell(self, epsilon: Epsilon, clicks: pa.Table, later: pa.Table, labels: Service | None) -> Json:
        """All steps after the start; returns the results. Models are tested on `later` clicks. `labels` is the labels
        party where the demo has one of its own."""
        t, folder, tag = self.t, self.folder, self.tag
        self.epsilon, too_much, self.lifetime = (str(Epsilon(epsilon.nano * n // 2)) for n in (2, 3, 4))
        self.revenue, self.features = clicks.select([ID, LABEL]), clicks.drop_columns([LABEL])
        unseen, self.truth = later.drop_columns([ID, LABEL]), labels_of(later)
        self.later = [unseen.slice(start, PREDICT_ROWS) for start in range(0, len(later), PREDICT_ROWS)]
        t.names = {id(self.features): "features", id(self.revenue): "revenue"}
        t.names |= {id(part): "later_clicks" for part in self.later}
        reference = ThreadPoolExecutor(1).submit(self.without_privacy, clicks)

        t.step("Publisher", "uploads its features to its own service")
        self.table = str(self.trainer.upload_table(self.features, ID)["id"])
        t.say(f"{self.features.num_columns - 1} columns a click. They never leave the publisher.")

        batch = self.fill(POPULATION, LABEL, {"events": {"data_set_id": self.shop.data_set} | EVENTS})

        t.step("Advertiser", f"asks what ε = {epsilon} would give")
        plan = self.owner.plan(POPULATION + tag, epsilon=str(epsilon), n=len(clicks))
        t.say(
            f"It compares {len(plan['mechanisms'])} designs and recommends '{plan['recommendations'][0]['mechanism']}'."
            " It reads no label, so it costs no ε. The advertiser takes the mechanism of the paper first."
        )

        release = self.publish(batch, "rr-on-bins")
        left = self.owner.budget(POPULATION + tag)["batches"][0]["epsilon_left"]
        t.say(f"ε = {left} is left per click.")

        t.step("Advertiser", f"asks for another ε = {too_much} on the same clicks")
        over_budget = self.refused(
            "budget-exceeded", lambda: self.owner.release(batch, epsilon=too_much, additional_release=True)
        )

        message, path = self.receive(release, "message.parquet"), folder / "message.parquet"
        seen = pq.read_table(path).slice(0, 4).to_pylist()
        truth = dict(zip(*(self.revenue[name].to_pylist() for name in (ID, LABEL)), strict=True))
        rows = [[row["example_id"], f"{row['label']:.2f}", f"{truth[row['example_id']]:.2f}"] for row in seen]
        t.say(f"All that the publisher sees of a click's revenue is one of {message['outputs']} values:")
        t.show("\n".join(lines("", ["click", "message", "true revenue, which stays at home"], rows, WIDTH)))

        t.step("Somebody", "flips one bit of the message on its way")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        files = {"manifest.dsse.json": Bundle(path).envelope(), path.name: bytes(content)}
        t.names[id(files)] = "{manifest, message with another bit}"
        tampered = self.refused("digest-mismatch", lambda: self.trainer.upload_message(files))

        t.step("Publisher", "trains on its features and the privatized labels")
        training = self.train(release)
        with t.bar("training"):  # the publisher trains in the background while both prepare the next step
            ordered = [("RR-on-Bins, uncorrected", self.train(release, "none"), message)]
            for name, mechanism in OTHERS.items():
                other = self.publish(self.fill(f"demo-{mechanism}", f"demo-{mechanism}"), mechanism)
                received = self.receive(other, f"comparison/{mechanism}.parquet")
                ordered.append((name, self.train(other), received))
            self.constant, self.best = self.mse(labels_of(clicks).mean()), self.mse(reference.result())
        first = self.learned("RR-on-Bins, corrected", training, message)
        t.say(f"The manifest alone corrects for the noise, at no ε: {first['worth']}.")
        t.say(
            f"Squared error on {len(later):,} later clicks: {first['test_mse']:,.0f}. The mean for every click has "
            f"{self.constant:,.0f}, the same model on true labels {self.best:,.0f}: {first['gain']:.0%} of the gain is "
            "there. Only a demo can say so, because it made up the truth."
        )

        t.step("Both", f"repeat it with other mechanisms, also at ε = {epsilon}")
        t.say(
            "Each gets a label name and a population of its own, so the ledger above stays as it is. They take "
            "finished sums in place of events. Do this with made-up clicks only: of real ones, every further message "
            "reveals more, and its ε adds to the first."
        )
        with t.bar("repeating it") as advance:
            table = [first]
            for each in ordered:
                advance(len(table) / (len(ordered) + 1))
                table.append(self.learned(*each))
        table[:2] = table[1::-1]
        table.append(dict.fromkeys(first) | NO_PRIVACY | {"test_mse": self.best})

        t.step("Auditor", "checks the message and both audit stores")
        (folder / "labels-party-audit.dsse.json").write_bytes(self.owner.audit_export())
        (folder / "features-party-audit.dsse.json").write_bytes(self.auditor.audit_export())
        (folder / "statement.html").write_text(self.owner.statement(release), encoding="utf-8")
        self.verify("message", "message.parquet", "labels-party.pub")
        self.verify("audit", "labels-party-audit.dsse.json", "labels-party.pub")
        self.verify("audit", "features-party-audit.dsse.json", "features-party.pub")
        if labels is not None:
            against = ("audit", "verify", "--against", str(folder / "features-party-audit.dsse.json"))
            t.show(labels.typed(*against), CODE)
            t.say(f"{labels.run(*against).strip()}: one history, each ε and each receipt the same at both parties.")
            shutil.copytree(folder / "features-party" / "models" / first["model"], folder / "model")
        return {
            "simulated": True,
            "clicks": len(clicks),
            "held_out_clicks": len(later),
            "epsilon": str(epsilon),
            "epsilon_lifetime": self.lifetime,
            "domain": DOMAIN,
            "population": POPULATION + tag,
            "release": release,
            "model": first["model"],
            "budget_left": left,
            "refusals": {"over_budget": over_budget, "tampered": tampered},
            "constant_mse": self.constant,
            "table": table,
        }

    def fill(self, population: str, label: str, more: Json | None = None) -> str:
        """A population with one sealed batch, of events where its rules (`more`) say so; returns the batch."""
        t, population, label = self.t, population + self.tag, label + self.tag
        t.step("Advertiser", "declares a population: label, public domain, lifetime ε")
        self.owner.create_population(
            name=population,
            label=label,
            domain=DOMAIN,
            lifetime_epsilon=self.lifetime,
            missing_label=0,  # without such a value no label could ever be erased
            audiences=[AUDIENCE],
            **(more or {}),
        )
        batch = str(self.owner.open_batch(population)["id"])
        t.say(f"ε = {self.lifetime} is left per click. Sums outside {DOMAIN} euros will be clipped.")

        t.step("Publisher", "sends its click ids across")
        listed = self.trainer.send_ids(self.table, self.labels_url, batch)["ids"]
        t.say(f"{listed:,} ids are fixed before any label counts.")

        if more:
            self.send_events(batch)
            return batch
        t.step("Advertiser", "sends every click's revenue to its own labels party")
        sent = self.backend.add_labels(batch, self.revenue, id_column=ID, label_column=LABEL)
        self.owner.seal(batch)
        t.say(f"{sent:,} labels, stored encrypted. The batch is sealed: from now on nothing in it changes.")
        return batch

    def send_events(self, batch: str) -> None:
        """Send the shop's day; the seal adds it up to one label a click. A refund comes too late."""
        t, shop = self.t, self.shop
        t.step("Advertiser", "sends its shop's events to its own labels party")
        shop_day(shop, self.revenue)
        t.say(f"POST {self.events_url} {json.dumps(shop.outbox[0])}", CODE)
        with t.bar("sending events"):
            count = shop.deliver()
        self.owner.seal(batch)
        t.say(
            f"{count:,} events of the Event & Conversion API 1.0, in disorder. Of each a keyed digest, a time and an "
            "amount are stored, encrypted. The seal makes one label a click of them: from now on nothing in it changes."
        )
        shop.refund("order-1", 100, int(time.time()))
        shop.deliver()
        counts = self.owner.event_counts(batch)
        rows = [[f"{counts[name]:,}", words] for name, words in BECAME.items() if counts[name]]
        t.show("\n".join(lines("", ["events", "what became of them, which the owner alone is told"], rows, WIDTH)))
        t.say(
            f"{counts['examples']:,} clicks have a sum. A refund after the seal is taken as any other event is, and "
            "counts for nothing: whoever sends events learns nothing of labels."
        )

    def publish(self, batch: str, mechanism: str) -> str:
        """Charge, draw, sign; returns the release."""
        self.t.step("Advertiser", "releases: ε is charged, then each label is drawn once")
        release = str(self.owner.release(batch, epsilon=self.epsilon, mechanism=mechanism)["id"])
        split = self.owner.wait(release)["epsilon"]
        self.t.say(
            f"ε = {self.epsilon} is spent: {split['prior']} on a private prior, {split['randomize']} on the labels. "
            "The message is signed and stored. It will never be drawn again."
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

    def receive(self, release: str, copy: str) -> Json:
        """The publisher's service pulls, verifies and accounts; a copy goes to the folder. Returns what it accepted."""
        self.t.step("Publisher", "pulls the message, verifies it with the pinned key")
        accepted: Json = self.trainer.pull(self.labels_url, release)["message"]
        key = VerifyingKey.load(self.keys / "labels-party.pub")
        with LabelsService(self.labels_url, secret(self.keys, "owner.key"), transport=httpx.HTTPTransport()) as service:
            pull(service, release, lambda _: key, AUDIENCE, self.folder / copy, lambda _what, _share: None)
        self.t.say(
            "Signature, audience and every byte are right. The publisher's own audit store holds "
            f"ε = {accepted['epsilon']['total']} too, and a signed receipt goes back."
        )
        return accepted

    def train(self, release: str, correction: Literal["none", "auto"] = "auto") -> str:
        """Put a training of trees alone in line, which is quick; returns its id."""
        asked = self.trainer.train(feature_table=self.table, messages=[release], model="trees", correction=correction)
        return str(asked["id"])

    def learned(self, name: str, training: str, message: Json) -> Json:
        """A line of the table once the model is trained: what its card says of the message, and its error."""
        with self.t.bar("training") as advance:
            for event in self.trainer.events(training):
                advance(float(event["share"]))
            model = self.trainer.wait(training)
        card = self.trainer.model(model)["card"]
        error = self.mse(np.concatenate([self.trainer.predict(model, part) for part in self.later]))
        source: Json = card["messages"][0]
        fixed = source["correction"]
        return source | {
            "mechanism": name,
            "model": model,
            "outputs": message["outputs"],
            "worth": card["capacity"]["why"],
            # expected squared error of a label as the model is trained on it
            "label_mse": fixed["noise_variance"] + fixed["residual_bias"] ** 2,
            "test_mse": error,
            "gain": (self.constant - error) / (self.constant - self.best),
        }

    def mse(self, predictions: Any) -> float:
        """Against the truth of the later clicks."""
        return float(np.mean((predictions - self.truth) ** 2))

    def without_privacy(self, clicks: pa.Table) -> Any:
        """Predictions of the features party's own training code on true labels: no service offers that."""
        threads = min(processors(), 8)
        examples = Examples(clicks.drop_columns([ID, LABEL]), labels_of(clicks), domain=Domain.parse(DOMAIN))
        model, _ = fit(examples, Recipe("trees"), threads=threads, progress=lambda _what, _share: None)
        return np.concatenate([model.predict(part, threads=threads) for part in self.later])

    def verify(self, what: str, file: str, key: str) -> None:
        """Have a file checked by code that is not the services'."""
        shutil.copyfile(self.keys / key, self.folder / key)
        words = (Path(sys.executable), VERIFIER, what, self.folder / file, "--key", self.folder / key)
        self.t.show(typed(*words), CODE)
        said = execute(*map(str, words)).splitlines()[-4:]
        self.t.say("; ".join(line.strip() for line in said if len(line) < WIDTH))
