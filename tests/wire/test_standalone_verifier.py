"""`deploy/verify_standalone` in a bare interpreter: golden files verify, every tampered one is refused."""

from __future__ import annotations

import ast
import base64
import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import cffi
import cryptography
import pytest

from deploy.packages import write_verifier
from label_dp.channels.base import Channel
from label_dp.documents.bundle import verify
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.signing import EXPORT_TYPE, MANIFEST_TYPE, SigningKey
from label_dp.domain import Domain
from label_dp.errors import MalformedManifest
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support.calibrations import signed_grid
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender, laplace, one_bit, rr

ROOT = Path(__file__).resolve().parents[2]
VERIFIER = ROOT / "deploy" / "verify_standalone"
GOLDEN = ROOT / "tests" / "wire" / "v1"
START = (
    "import runpy, sys; sys.path.append({site!r}); sys.argv = {argv!r}; runpy.run_path({folder!r}, run_name='__main__')"
)


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The folder in an interpreter that has the standard library and `cryptography` only, far from this project."""
    site, home = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    packages = Path(cryptography.__file__).parent.parent
    for found in (packages / "cryptography", Path(cffi.__file__).parent, *packages.glob("_cffi_backend*")):
        (site / found.name).symlink_to(found)
    # under another name, beside files that would take the place of what it imports
    copy = home / "audit"
    shutil.copytree(VERIFIER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("json.py", "cryptography.py", "audit.py"):
        (home / name).write_text("raise SystemExit(3)\n")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        code = START.format(site=str(site), argv=[str(copy), *map(str, words)], folder=str(copy))
        environment = {"PATH": "/usr/bin:/bin", "PYTHONUTF8": "1"}
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", code]
        return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=60)

    assert run("message", "x", "--key", "y").returncode == 2
    return run


Bare = Callable[..., subprocess.CompletedProcess[str]]


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith("REFUSED: ")
    assert "VERIFIED" not in done.stdout
    for word in words:
        assert word in done.stderr


def verified(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("VERIFIED")
    return done.stdout


def test_it_imports_the_standard_library_and_cryptography_only() -> None:
    files = sorted(VERIFIER.glob("*.py"))
    names: set[str] = set()
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(file.read_text("utf-8"))) for file in files):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1
            assert (VERIFIER / f"{node.module}.py") in files
    assert names <= set(sys.stdlib_module_names) | {"cryptography"}
    assert not list(VERIFIER.glob("*/*.py"))
    # the folder is on the path until its command is found
    assert not {file.stem for file in files} & set(sys.stdlib_module_names)


def test_its_one_file_holds_the_whole_folder_in_the_same_bytes_each_time(tmp_path: Path) -> None:
    one, again = tmp_path / "one.pyz", tmp_path / "again.pyz"
    write_verifier(one)
    write_verifier(again)
    assert one.read_bytes() == again.read_bytes()
    with ZipFile(one) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert held.pop("__main__.py")
    assert held == {f"verify_label_dp/{file.name}": file.read_bytes() for file in VERIFIER.glob("*.py")}


@pytest.mark.processes
def test_its_one_file_verifies_and_refuses(tmp_path: Path, golden: Path) -> None:
    """`make dist` runs it beside `cryptography` alone, on each kind of document."""
    write_verifier(tmp_path / "verify.pyz")
    command = [sys.executable, "-I", tmp_path / "verify.pyz", "message", golden, "--key", golden.parent / "signing.pub"]
    verified(subprocess.run(command, capture_output=True, text=True))
    golden.write_bytes(golden.read_bytes()[:-1])
    refused(subprocess.run(command, capture_output=True, text=True), "message.parquet")


@pytest.mark.processes
def test_the_bare_interpreter_does_not_see_this_project(bare: Bare, tmp_path: Path) -> None:
    names = ("label_dp", "labels_party", "rfc8785", "pyarrow")
    probe = f"from importlib.util import find_spec; print([find_spec(name) for name in {names}])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "[None, None, None, None]"


# --- messages -----------------------------------------------------------------------------------------------


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the golden message, with its prior and key."""
    for file in GOLDEN.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path / "message.parquet"


def check(bare: Bare, message: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return bare("message", message, "--key", message.parent / "signing.pub", *more)


@pytest.mark.processes
def test_the_golden_message_verifies(bare: Bare, golden: Path) -> None:
    told = verified(check(bare, golden, "--audience", "features-party"))
    assert "ε 1.05 = clip 0 + prior 0.05 + randomize 1" in told
    refused(check(bare, golden, "--audience", "somebody"), "somebody")
    golden.with_name("message.prior.parquet").unlink()
    assert "not checked: the prior" in verified(check(bare, golden))


@pytest.mark.processes
@pytest.mark.parametrize("name", ["message.parquet", "message.prior.parquet", "message.parquet.dsse.json"])
def test_a_changed_bit_in_any_file_is_refused(bare: Bare, golden: Path, name: str) -> None:
    path = golden.with_name(name)
    whole, rng = path.read_bytes(), random.Random(name)
    for _ in range(8):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(changed))
        refused(check(bare, golden))
    for cut in (whole[:-1], whole + b" ", b""):
        path.write_bytes(cut)
        refused(check(bare, golden))


@pytest.mark.processes
def test_another_key_is_refused(bare: Bare, golden: Path) -> None:
    golden.with_name("signing.pub").write_bytes(SigningKey.generate().public.pem)
    refused(check(bare, golden), "another signing key")


@pytest.mark.processes
def test_unreadable_files_are_bad_usage_and_no_refusal(bare: Bare, golden: Path) -> None:
    assert bare("message", golden).returncode == 2
    golden.unlink()
    assert check(bare, golden).returncode == 2


def designed(name: str, *, unclipped: bool) -> Channel:
    options = {"unclipped": True} if unclipped else {}
    return MECHANISMS[name].design(Domain.parse("0:10"), None, Epsilon.parse("2"), "squared", options)


CHANNELS: dict[str, Channel] = {
    "bins": rr("0:10", 2.0),
    "two labels": rr("0:1", 0.1, (1,)),
    "one bit": one_bit("0:10", 2.0),
}
CHANNELS |= {"one bit": one_bit("0:10", 2.0), "noise": laplace("0:10", 2.0), "decimals": laplace("-1:1:0.25", 2.0)}
CHANNELS |= {name: designed(name, unclipped=False) for name in ("laplace", "discrete-staircase", "exponential")}
CHANNELS |= {f"{name} unclipped": designed(name, unclipped=True) for name in ("discrete-laplace", "staircase")}


@pytest.mark.processes
@pytest.mark.parametrize("name", CHANNELS)
def test_every_kind_of_channel_verifies_at_its_epsilon_and_not_below(bare: Bare, tmp_path: Path, name: str) -> None:
    channel = CHANNELS[name]
    epsilon = "0.1" if name == "two labels" else str(channel.epsilon) if name == "exponential" else "2"

    def less(document: dict[str, Any]) -> None:
        nano = round(float(epsilon) * 10**9) - 1
        below = f"{nano // 10**9}.{nano % 10**9:09d}"
        document["epsilon"] |= {"randomize": below, "total": below}

    for edit in (None, less):
        sender = Sender()
        path = tmp_path / ("right" if edit is None else "less") / "m.parquet"
        sender.write(path, ["a", "b", "c"], channel.labels[[0, 0, -1]], channel, epsilon=epsilon, edit=edit)
        path.with_name("signing.pub").write_bytes(sender.key.public.pem)
        done = check(bare, path)
        verified(done) if edit is None else refused(done, "ε")


@pytest.mark.processes
def test_a_message_of_several_files_is_a_folder(bare: Bare, tmp_path: Path) -> None:
    sender, path = Sender(), tmp_path / "m"
    sender.write(path, [f"c{i}" for i in range(10)], rr().labels[[1] * 10], rr(), parts=3)
    (tmp_path / "signing.pub").write_bytes(sender.key.public.pem)
    verified(check(bare, path))
    (path / "part-1.parquet").write_bytes(b"")
    refused(check(bare, path), "part-1.parquet")


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "parts that do not add up": lambda m: m["epsilon"].update(prior="0.1"),
    "more spent than the lifetime": lambda m: m.update(epsilon_spent="11"),
    "less spent than this release": lambda m: m.update(epsilon_spent="1"),
    "another spelling of a number": lambda m: m.update(epsilon_spent="2.0"),
    "a heavier own bin": lambda m: m["channel"].update(A=str(int(m["channel"]["A"]) + 1)),
    "another total weight": lambda m: m["channel"].update(N="4"),
    "boundaries outside the domain": lambda m: m["channel"].update(boundaries=["0", "4", "8", "12"]),
    "an unknown channel": lambda m: m["channel"].update(kind="magic"),
    "a path for a name": lambda m: m["files"][0].update(name="../message.parquet"),
    "rows that do not add up": lambda m: m.update(n=4),
    "a newer format": lambda m: m.update(format="label-dp-message/2"),
    "no files": lambda m: m.update(files=[]),
    "a missing member": lambda m: m.pop("epsilon"),
    "a list for an object": lambda m: m.update(epsilon=[]),
    "another key's name": lambda m: m.update(key_id="ed25519:" + "0" * 64),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", WRONG)
def test_a_validly_signed_lie_is_refused(bare: Bare, tmp_path: Path, name: str) -> None:
    sender, path = Sender(), tmp_path / "m.parquet"
    sender.write(path, ["a", "b", "c"], rr().labels[[0, 1, 2]], rr(), edit=WRONG[name])
    path.with_name("signing.pub").write_bytes(sender.key.public.pem)
    refused(check(bare, path))


def bought(m: dict[str, Any]) -> None:
    """The message's domain 0:10 as if it had been bought inside 0:20 with an ε_clip of 0.5."""
    m.update(domain_source="bought with ε_clip", epsilon_spent="2.5")
    m["epsilon"].update(clip="0.5", total="2.5")
    about = {"quantiles": ["0.9"], "bounds": ["10"], "epsilon": "0.5", "public_domain": {"range": "0:20:1"}}
    m["clipping"] = about | {"mechanism": "exponential mechanism on ranks"}


ABOUT_BOUNDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "bounds that are not stated": lambda m: m.pop("clipping"),
    "null for bounds": lambda m: m.update(clipping=None),
    "a declared domain": lambda m: m.update(domain_source="declared public by the owner"),
    "another ε": lambda m: m["clipping"].update(epsilon="0.4"),
    "bounds for nothing": lambda m: (m["epsilon"].update(clip="0", total="2"), m["clipping"].update(epsilon="0")),
    "a bound elsewhere": lambda m: m["clipping"].update(bounds=["9"]),
    "no number for a bound": lambda m: m["clipping"].update(bounds=["ten"]),
    "a quantile of 1": lambda m: m["clipping"].update(quantiles=["1"]),
    "quantiles that fall": lambda m: m["clipping"].update(quantiles=["0.9", "0.1"], bounds=["0", "10"]),
    "a smaller public domain": lambda m: m["clipping"].update(public_domain={"range": "0:9:1"}),
    "a public domain of another step": lambda m: m["clipping"].update(public_domain={"range": "0:20:2"}),
    "a lower end that nobody bought": lambda m: m["clipping"].update(public_domain={"range": "-1:20:1"}),
    "a public domain of listed values": lambda m: m["clipping"].update(public_domain={"values": ["0", "10"]}),
    "no public domain": lambda m: m["clipping"].pop("public_domain"),
}


@pytest.mark.processes
def test_bought_bounds_verify_and_lies_about_them_do_not(bare: Bare, tmp_path: Path) -> None:
    for name, lie in {"": lambda _: None, **ABOUT_BOUNDS}.items():

        def told(document: dict[str, Any], lie: Callable[[dict[str, Any]], object] = lie) -> None:
            bought(document)
            lie(document)

        sender, path = Sender(), tmp_path / f"m {name}" / "m.parquet"
        sender.write(path, ["a", "b", "c"], rr().labels[[0, 1, 2]], rr(), edit=told)
        path.with_name("signing.pub").write_bytes(sender.key.public.pem)
        done = check(bare, path)
        if name:
            refused(done)
            with pytest.raises(MalformedManifest):
                verify(path, sender.key.public, None)
        else:
            assert "labels clipped at 10, bought at the quantile 0.9 for ε 0.5" in verified(done)
            verify(path, sender.key.public, None)


@pytest.mark.processes
def test_signed_bytes_that_are_not_canonical_are_refused(bare: Bare, golden: Path) -> None:
    envelope = golden.with_name("message.parquet.dsse.json")
    data = json.loads(envelope.read_bytes())
    envelope.write_bytes(json.dumps(data).encode())
    refused(check(bare, golden), "canonical")


# --- answers ------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_signed_answer_verifies_and_no_bit_of_it_flips(bare: Bare, tmp_path: Path) -> None:
    key = SigningKey.generate()
    path, public = tmp_path / "map.json", tmp_path / "signing.pub"
    public.write_bytes(key.public.pem)
    path.write_bytes(signed_grid(key))
    assert "2 x 3 cells" in verified(bare("answer", path, "--key", public, "--audience", "features-party"))
    refused(bare("answer", path, "--key", public, "--audience", "somebody"), "somebody")
    refused(bare("audit", path, "--key", public), "type")
    assert bare("answer", tmp_path / "none.json", "--key", public).returncode == 2
    whole = path.read_bytes()
    changed = whole.replace(b'"payload":"ey', b'"payload":"eX')
    path.write_bytes(changed)
    refused(bare("answer", path, "--key", public))
    path.write_bytes(whole + b"\n" + whole + b"\n")  # as `labels-party predict` writes answers
    assert verified(bare("answer", path, "--key", public)).count("2 x 3 cells") == 2
    for wrong in (changed + b"\n", b"\n", b" \n", b"x"):
        path.write_bytes(whole + b"\n" + wrong)
        refused(bare("answer", path, "--key", public))
    path.write_bytes(b"")
    refused(bare("answer", path, "--key", public))


# --- audit exports ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], SigningKey, Path]:
    """The document of a real export with every kind of charge, its key, and the public key's file."""
    with LabelsParty(tmp_path_factory.mktemp("party") / "home", worker=False) as party:
        owner, officer = party.client("owner"), party.client("auditor")
        batch = party.sealed_batch(label_table(40))
        party.release(batch, "1")
        party.services.decisions.cancel(party.charge(batch, "2", additional_release=True), "command line")
        body = {"name": "zwei", "label": "größe", "domain": "0:3", "lifetime_epsilon": "1.5", "four_eyes": True}
        owner.post("/v1/populations", json=body | {"audiences": ["b\u00fcro", "\U0001f600", "\ufb33"]})
        second = owner.post("/v1/populations/zwei/batches", json={"presence": "public"}).json()["id"]
        owner.post(f"/v1/batches/{second}/labels", json={"records": [{"example_id": "x", "label": 1}]})
        owner.post(f"/v1/batches/{second}/seal")
        asked = owner.post(f"/v1/batches/{second}/releases", json={"epsilon": "1", "mechanism": "one-bit"}).json()["id"]
        assert officer.post(f"/v1/releases/{asked}/approve").json()["state"] == "charged"
        envelope = officer.get("/v1/audit/export").content
        key, public = party.services.key, party.home / "keys" / "signing.pub"
    document = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return document, key, public


def signed(path: Path, key: SigningKey, document: Any, kind: str = EXPORT_TYPE) -> Path:
    path.write_bytes(key.sign(kind, document))
    return path


def chained(document: dict[str, Any]) -> dict[str, Any]:
    """The document with numbers, links, count and head made right again after a change."""
    previous = "0" * 64
    for number, event in enumerate(document["events"], start=1):
        event |= {"sequence": number, "previous": previous}
        previous = hashlib.sha256(canonical_bytes(event)).hexdigest()
    return document | {"count": len(document["events"]), "head": previous}


def of_kind(document: dict[str, Any], kind: str, at: int = 0) -> dict[str, Any]:
    found: list[dict[str, Any]] = [e for e in document["events"] if e["kind"] == kind]
    return found[at]


def copied(document: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(document)))


Export = tuple[dict[str, Any], SigningKey, Path]


@pytest.mark.processes
def test_a_real_export_verifies_with_its_totals(bare: Bare, export: Export, tmp_path: Path) -> None:
    document, key, public = export
    told = verified(bare("audit", signed(tmp_path / "audit.json", key, document), "--key", public))
    assert "ε 1 of 10 spent" in told  # 2 more were charged and returned
    assert "ε 1 of 1.5 spent" in told
    assert document["head"] in told
    assert "not checked" in told


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "an event is left out": lambda d: d["events"].pop(3),
    "two events change places": lambda d: d["events"].insert(2, d["events"].pop(4)),
    "a charge is lowered": lambda d: of_kind(d, "release-charged")["epsilon_nano"].update(
        total=1, prior=0, randomize=1
    ),
    "the end is cut off": lambda d: d["events"].pop(),
    "another store's event": lambda d: d["events"][2].update(store="0" * 32),
    "an actor is changed": lambda d: d["events"][4].update(actor="nobody"),
    "the count is wrong": lambda d: d.update(count=1),
    "the head is wrong": lambda d: d.update(head="0" * 64),
    "an unknown member": lambda d: d["events"][1].update(more=1),
    "not a list": lambda d: d.update(events=None),
}

# chained again by somebody who has the key: only the sums and the approvals give it away
FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "parts that do not add up": lambda d: of_kind(d, "release-charged")["epsilon_nano"].update(prior=7),
    "beyond the lifetime": lambda d: of_kind(d, "release-charged")["epsilon_nano"].update(
        clip=0, prior=0, randomize=11 * 10**9, total=11 * 10**9
    ),
    "returned, never charged": lambda d: (
        d["events"].remove(of_kind(d, "release-charged", 1))
        or d["events"].remove(of_kind(d, "release-charged"))
        or d["events"].remove(of_kind(d, "release-published"))
    ),
    "a negative charge": lambda d: of_kind(d, "release-charged")["epsilon_nano"].update(
        prior=-5, total=5, randomize=10
    ),
    "charged without an approval": lambda d: d["events"].remove(of_kind(d, "release-approved")),
    "approved by who asked": lambda d: of_kind(d, "release-approved").update(
        actor=of_kind(d, "release-requested")["actor"]
    ),
    "a δ of another spelling": lambda d: d["events"][2].update(delta="0.0"),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", [*LIES, *FORGED])
def test_a_tampered_export_is_refused(bare: Bare, export: Export, tmp_path: Path, name: str) -> None:
    document, key, public = copied(export[0]), export[1], export[2]
    (LIES | FORGED)[name](document)
    if name in FORGED:
        document = chained(document)
    refused(bare("audit", signed(tmp_path / "audit.json", key, document), "--key", public))


@pytest.mark.processes
def test_an_export_is_no_message_and_bits_of_it_do_not_flip(bare: Bare, export: Export, tmp_path: Path) -> None:
    document, key, public = export
    path = signed(tmp_path / "audit.json", key, document, MANIFEST_TYPE)
    refused(bare("audit", path, "--key", public), "type")
    whole, rng = signed(path, key, document).read_bytes(), random.Random(1)
    for _ in range(6):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(changed))
        refused(bare("audit", path, "--key", public))
    (tmp_path / "other.pub").write_bytes(SigningKey.generate().public.pem)
    path.write_bytes(whole)
    refused(bare("audit", path, "--key", tmp_path / "other.pub"), "another signing key")
