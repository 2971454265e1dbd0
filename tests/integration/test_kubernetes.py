"""deploy/kubernetes: valid by the schemas of Kubernetes, with real settings, confined, and apart from each other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.integration.test_deploy_files import PARTIES, PORTS, SETTINGS, clear, names, names_of_files, prefix

pytestmark = pytest.mark.extended

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
KINDS = ("StatefulSet", "Deployment", "PodDisruptionBudget")
BASES = sorted(path.name for path in FOLDER.iterdir() if (path / "kustomization.yaml").exists())


def kustomization(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text(encoding="utf-8"))
    return data


def resources(name: str) -> list[dict[str, Any]]:
    """What a folder declares, with what it builds on; before generators and patches."""
    found: list[dict[str, Any]] = []
    for entry in kustomization(name)["resources"]:
        path = FOLDER / name / entry
        found += resources(path.name) if path.is_dir() else yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return found


def settings_of(party: str) -> list[str]:
    """The literals of its ConfigMap."""
    (made,) = kustomization(party)["configMapGenerator"]
    found: list[str] = made["literals"]
    return found


def pods(name: str) -> list[dict[str, Any]]:
    return [each["spec"]["template"] for each in resources(name) if each["kind"] in ("StatefulSet", "Deployment")]


def party_of(name: str) -> str:
    return next(party for party in PARTIES if name.startswith(party))


@pytest.mark.parametrize("name", BASES)
def test_every_resource_is_valid(name: str) -> None:
    for resource in resources(name):
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    broken = json.loads(json.dumps(resources(name)[0]))
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.processes
@pytest.mark.parametrize("name", BASES)
def test_kustomize_renders_it(name: str) -> None:
    if shutil.which("kubectl") is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is not installed")
        pytest.skip("kubectl is not installed; the files alone were checked")
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER / name)], capture_output=True, check=True)
    rendered = list(yaml.safe_load_all(done.stdout))
    for resource in rendered:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
        assert resource["metadata"]["namespace"] == party_of(name)
    settings = {each["metadata"]["name"] for each in rendered if each["kind"] == "ConfigMap"}
    for each in rendered:
        for container in each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            assert container["image"] == f"registry.example/label-dp/{party_of(name)}:0.1.0"
            assert container["envFrom"][0]["configMapRef"]["name"] in settings
    policy = next(e for e in rendered if e["kind"] == "NetworkPolicy" and e["metadata"]["name"] == party_of(name))
    (database,) = (rule["to"] for rule in policy["spec"]["egress"] if rule["ports"] == [{"port": 5432}])
    assert ("ipBlock" in database[0]) == (name == "labels-party-replicas")


@pytest.mark.parametrize("name", BASES)
def test_its_settings_load(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clear(monkeypatch)
    party = party_of(name)
    literals = dict(
        literal.split("=", 1)
        for each in dict.fromkeys((party, name))
        for generator in kustomization(each)["configMapGenerator"]
        for literal in generator["literals"]
    )
    ours = {key for key in literals if key.startswith(prefix(party))}
    assert ours <= names(party) | names_of_files(party)
    for key in ours:
        monkeypatch.setenv(key, literals[key])
        if key in names_of_files(party):
            file = tmp_path / Path(literals[key]).name
            file.write_text("secret", encoding="utf-8")
            monkeypatch.setenv(key, str(file))
    settings = SETTINGS[party].load()
    for pod in pods(name):
        (container,) = pod["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"http": PORTS[party], "metrics": settings.metrics_port, "probes": settings.probes_port}
        scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(settings.metrics_port)}
        assert pod["metadata"]["annotations"] == scraped
        mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounted[str(settings.home.parent)] == "home"
        assert pod["spec"]["terminationGracePeriodSeconds"] >= 2 * settings.shutdown_seconds


@pytest.mark.parametrize("name", BASES)
def test_every_pod_is_confined(name: str) -> None:
    assert pods(name)
    for pod in pods(name):
        spec = pod["spec"]
        # variables of Kubernetes, and a token of its API, are for nobody here
        assert spec["enableServiceLinks"] is False
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert set(container["resources"]["limits"]) == {"cpu", "memory"}
        for container in spec["containers"]:
            kinds = ("startup", "readiness", "liveness")
            probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in kinds}
            assert probes == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
            # a port that no caller fills
            (port,) = {container[f"{kind}Probe"]["httpGet"]["port"] for kind in kinds}
            own = {one["name"]: one["containerPort"] for one in container["ports"]}
            assert f"{prefix(party_of(name))}PROBES_PORT={own[port]}" in settings_of(party_of(name))
            assert len({own[each] for each in ("http", "metrics", port)}) == 3


@pytest.mark.parametrize("name", BASES)
def test_one_pod_works_and_others_answer(name: str) -> None:
    for each in resources(name):
        if each["kind"] == "StatefulSet":
            assert each["spec"]["replicas"] == 1
            (claim,) = each["spec"]["volumeClaimTemplates"]
            assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            assert {"name": f"{prefix(party_of(name))}WORKER", "value": "false"} in container["env"]
    named = {kind: {e["metadata"]["name"] for e in resources(name) if e["kind"] == kind} for kind in KINDS}
    assert named["StatefulSet"] | named["Deployment"] == named["PodDisruptionBudget"]


@pytest.mark.parametrize("party", PARTIES)
def test_an_ingress_passes_what_the_proxies_pass(party: str) -> None:
    (ingress,) = (each for each in resources(f"{party}-ingress") if each["kind"] == "Ingress")
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] in ingress["spec"]["tls"][0]["hosts"]
    (path,) = rule["http"]["paths"]
    (service,) = (each for each in resources(party) if each["kind"] == "Service")
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]
    words = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}
    template = (FOLDER.parent / "proxies" / "nginx.conf.template").read_text(encoding="utf-8")
    for word in ("proxy-request-buffering", "proxy-buffering"):
        assert f"{word.replace('-', '_')} {words[word]};" in template
    assert f" {words['limit-connections']};" in template
    assert words["auth-tls-verify-client"] == "on"
    made = kustomization(f"{party}-ingress")["configMapGenerator"][0]["literals"]
    (trusted,) = (literal.partition("=")[2] for literal in made if "_PROXIES=" in literal)
    assert SETTINGS[party](proxies=trusted).proxy_list


@pytest.mark.parametrize("party", PARTIES)
def test_the_network_is_that_of_the_compose_file(party: str) -> None:
    policies = {e["metadata"]["name"]: e["spec"] for e in resources(party) if e["kind"] == "NetworkPolicy"}
    assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    own = policies[party]
    assert own["podSelector"]["matchLabels"].items() <= pods(party)[0]["metadata"]["labels"].items()
    http = [rule for rule in own["ingress"] if {"port": PORTS[party]} in rule["ports"]]
    assert [peer["podSelector"]["matchLabels"] for rule in http for peer in rule["from"]] == [
        {"label-dp/front-door": party}
    ]
    (scraping,) = [rule for rule in own["ingress"] if {"port": PORTS[party]} not in rule["ports"]]
    (peer,) = scraping["from"]  # one entry: both selectors must hold
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}
    databases = [peer for rule in own["egress"] if {"port": 5432} in rule["ports"] for peer in rule["to"]]
    assert databases == [{"podSelector": {"matchLabels": {"label-dp/database": party}}}]
    # nothing of the cluster but names and the database
    inside = [rule for rule in own["egress"] if "ipBlock" not in rule["to"][0]]
    assert len(inside) == 2
    assert re.search("kube-dns", str(inside))
