"""Both clients, the command line and curl through the proxies of deploy/proxies, with mutual TLS."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from deploy.demo.services import Service
from features_party.client import FeaturesPartyClient
from label_dp.client import peer
from label_dp.http.calls import Calls
from labels_party.client import LabelsPartyClient
from tests.support.both_parties import features_keys, labels_keys
from tests.support.commands import command
from tests.support.proxies import FILES, NAME, authority, front_door, trusting

pytestmark = pytest.mark.processes

ROWS = 3000
PARTIES = (("labels-party", "LABELS_PARTY_"), ("features-party", "FEATURES_PARTY_"))


@dataclass(frozen=True)
class Rig:
    proxy: str
    folder: Path
    certificates: Path
    labels: str
    features: str
    services: dict[str, Service]
    keys: dict[str, str]

    def client(self, name: str | None = "publisher") -> httpx.Client:
        return httpx.Client(verify=trusting(self.certificates, name), trust_env=False, timeout=60)


@pytest.fixture(scope="module", params=["caddy", "nginx"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    proxy, folder = request.param, tmp_path_factory.mktemp(request.param)
    certificates = authority(folder / "certificates", NAME, "publisher", "advertiser")
    kernels = Path(os.environ["NUMBA_CACHE_DIR"])
    services = {name: Service(name, prefix, folder / name, folder / f"{name}.log", kernels) for name, prefix in PARTIES}
    labels, features = services.values()
    keys = labels_keys(labels.home, "owner", "ingest", "features")
    keys |= features_keys(features.home, labels.home / "keys" / "signing.pub", "trainer")
    try:
        for service in services.values():
            service.environment |= {"PROXIES": "127.0.0.1"}
        labels.launch()
        labels.await_ready()
        with front_door(proxy, folder / "labels-door", certificates, labels.url) as labels_door:
            (folder / "api.key").write_text(keys["features"], encoding="utf-8")
            features.environment |= {
                "LABELS_URLS": json.dumps([labels_door]),
                "LABELS_API_KEY_FILE": str(folder / "api.key"),
                "LABELS_AUTHORITY": str(certificates / "authority.pem"),
                "LABELS_CERTIFICATE": str(certificates / "publisher" / "client.pem"),
                "THREADS": "1",
            }
            features.launch()
            features.await_ready()
            with front_door(proxy, folder / "features-door", certificates, features.url) as features_door:
                yield Rig(proxy, folder, certificates, labels_door, features_door, services, keys)
    finally:
        for service in services.values():
            service.stop()


def curl(rig: Rig, url: str, *words: str) -> tuple[int, str]:
    """curl's exit code and the status that it saw."""
    trusted = ["--cacert", str(rig.certificates / "authority.pem"), "--noproxy", "*"]
    done = subprocess.run(
        ["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", *trusted, *words, url], capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode()


def test_a_release_and_a_training_through_the_doors(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    ids, x = [f"c{i:05}" for i in range(ROWS)], generator.normal(size=ROWS)
    labels = pa.table({"id": ids, "sales": np.clip(np.round(10 + 3 * x), 0, 20)})
    with rig.client("advertiser") as theirs, rig.client("publisher") as ours:
        owner, backend = (LabelsPartyClient(rig.labels, rig.keys[role], http=theirs) for role in ("owner", "ingest"))
        trainer = FeaturesPartyClient(rig.features, rig.keys["trainer"], http=ours)
        owner.create_population(name="shop", label="sales", domain="0:20", lifetime_epsilon="4")
        batch = owner.open_batch("shop")["id"]
        table = trainer.upload_table(pa.table({"id": ids, "x": x}), "id")["id"]
        assert trainer.send_ids(table, rig.labels, batch)["ids"] == ROWS
        backend.add_labels(batch, labels, id_column="id", label_column="sales")
        owner.seal(batch)
        release = owner.release(batch, epsilon="2")["id"]
        owner.wait(release)
        assert trainer.pull(rig.labels, release)["message"]["epsilon"]["total"] == "2"
        training = trainer.train(feature_table=table, messages=[release], model="linear")["id"]
        shares = [event["share"] for event in trainer.events(training)]
        assert shares[-1] == 1
        model = trainer.wait(training)
        predicted = trainer.predict(model, pa.table({"x": [-2.0, 2.0]}))
        assert predicted[0] < predicted[1]
    # the command line of the publisher, with the settings of its service
    features = rig.services["features-party"]
    environment = {"FEATURES_PARTY_" + name: value for name, value in features.environment.items()}
    environment["FEATURES_PARTY_HOME"] = str(features.home)
    words = ("pull", "--url", rig.labels, "--release", release, "--out", "message.parquet")
    done = command("features-party", *words, folder=rig.folder, environment=environment)
    assert done.returncode == 0, done.stderr
    # a publisher who does not know the authority stops before it says its key
    del environment["FEATURES_PARTY_LABELS_AUTHORITY"], environment["FEATURES_PARTY_LABELS_CERTIFICATE"]
    monkeypatch.setattr(peer, "LONGEST_PAUSE", 0.01)
    refused = command("features-party", *words, "--force", folder=rig.folder, environment=environment)
    assert refused.returncode != 0


def test_nobody_is_heard_without_a_certificate(rig: Rig) -> None:
    own = ("--cert", str(rig.certificates / "publisher" / "client.pem"))
    for door in (rig.labels, rig.features):
        assert curl(rig, f"{door}/healthz", *own) == (0, "200")
        code, status = curl(rig, f"{door}/healthz")
        assert code != 0 or status == "400"
        assert curl(rig, f"{door}/v1/nothing", *own) == (0, "401")


def test_metrics_and_descriptions_stay_inside(rig: Rig) -> None:
    own = ("--cert", str(rig.certificates / "publisher" / "client.pem"))
    paths = ("metrics", "docs", "openapi.json", "docs-assets/swagger-ui.css", "readyz", "metrics/", "v1/../metrics")
    for door, service in ((rig.labels, "labels-party"), (rig.features, "features-party")):
        assert httpx.get(f"{rig.services[service].url}/metrics", trust_env=False).status_code == 200
        for path in paths:
            assert curl(rig, f"{door}/{path}", "--path-as-is", *own)[1] in ("404", "400", "401"), path


def test_whatever_is_no_call_and_no_page_stays_inside() -> None:
    """A new route beside both needs a word in both files."""
    closed = {"/metrics", "/readyz", "/docs", "/docs-assets", "/openapi.json"}
    for file in ("Caddyfile", "nginx.conf.template"):
        text = (FILES / file).read_text(encoding="utf-8")
        assert all(path.removeprefix("/").replace(".", r"\.") in text or path in text for path in closed)
    for module in ("labels_party", "features_party"):
        create_app = importlib.import_module(f"{module}.api.app").create_app
        with tempfile.TemporaryDirectory() as home:
            bootstrap = importlib.import_module(f"{module}.bootstrap")
            settings = importlib.import_module(f"{module}.settings").Settings
            app = create_app(bootstrap.bootstrap(settings(home=Path(home) / "home", worker=False)))
            calls = [
                call
                for call in Calls(app)
                if ".pages." not in str(getattr(getattr(call.route, "endpoint", None), "__module__", ""))
            ]
            beside = {call.path for call in calls if not call.path.startswith("/v1/")}
            app.state.services.close()
        assert beside - {"/healthz"} == closed & beside


def test_a_person_signs_in_through_the_door(rig: Rig) -> None:
    for door, key in ((rig.labels, "owner"), (rig.features, "trainer")):
        with rig.client() as person:
            asked = person.get(door, follow_redirects=True)
            assert asked.status_code == 200
            assert asked.url.path == "/sign-in"
            style = re.search(r'href="([^"]+\.css)"', asked.text)
            assert style is not None
            assert person.get(str(asked.url.join(style[1]))).status_code == 200
            entered = person.post(f"{door}/sign-in", data={"key": rig.keys[key]})
            assert entered.status_code == 303
            assert "secure" in entered.headers["set-cookie"].lower()  # the service believes the door about TLS
            assert person.get(door, follow_redirects=True).status_code == 200
            forged = {"X-Forwarded-For": "10.9.9.9 key=OWNER", "Authorization": "Bearer x"}
            assert person.get(f"{door}/v1/releases", headers=forged).status_code in (401, 404)
    for service in rig.services.values():
        assert "10.9.9.9" not in service.log.read_text(encoding="utf-8")


def test_an_upload_passes_as_it_comes_and_leaves_nothing_on_the_proxy(rig: Rig) -> None:
    door = rig.folder / "labels-door"
    before = {path for path in door.rglob("*") if path.is_file()}
    ids = [f"r{i:06}" for i in range(100_000)]
    pieces = ["example_id,label\n", *("".join(f"{name},1\n" for name in ids[n::4]) for n in range(4))]
    held: list[set[Path]] = []

    def body() -> Iterator[bytes]:
        for piece in pieces:
            yield piece.encode()
            held.append({path for path in door.rglob("*") if path.is_file() and path.stat().st_size} - before)

    with rig.client("advertiser") as http:
        owner = LabelsPartyClient(rig.labels, rig.keys["owner"], http=http)
        name = f"wide-{rig.proxy}"
        owner.create_population(name=name, label=name, domain="0:20", lifetime_epsilon="4")
        batch = owner.open_batch(name)["id"]
        owner.put_examples(batch, pa.table({"example_id": ids}))
        answer = http.post(
            f"{rig.labels}/v1/batches/{batch}/labels",
            content=body(),
            headers={"Authorization": f"Bearer {rig.keys['ingest']}", "Content-Type": "text/csv"},
        )
    assert answer.status_code < 300, answer.text
    assert len(held) == len(pieces)
    assert not set().union(*held), "the proxy keeps labels on its disk"
