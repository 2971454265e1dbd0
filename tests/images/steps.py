"""The steps of the play: each returns what was seen, in a few words, or raises Failed."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable

from deploy.images.engine import PROJECT, Failed
from tests.images.measured import DATABASES, at_rest, started, under_load
from tests.images.rig import PARTIES, READY_SECONDS, Rig, features_export, one_history, said, same_releases

IMAGES = ("label-dp/labels-party", "label-dp/features-party", "label-dp/demo")
LARGEST = 900_000_000  # bytes of a party's image
REBUILT_SECONDS = 30.0  # after an edit of a source
COPIED = ("pyproject.toml", "README.md", "LICENSE", "shared", "labels_party", "features_party", "deploy")
# what a party's image must not have: an installer, tests, and the other one's heaviest libraries
ABSENT = {"label-dp/labels-party": "pip xgboost scipy onnx", "label-dp/features-party": "pip opendp numba llvmlite"}
TAKE = """umask 077; cat > /tmp/passphrase
labels-party backup --out /var/lib/labels-party/taken --passphrase-file /tmp/passphrase --force > /dev/null"""
BRING_BACK = """umask 077; cat > /tmp/passphrase
labels-party restore /backup/taken --passphrase-file /tmp/passphrase --against /backup/features.json > /dev/null"""
PROCESSORS = 1  # of a container in this play, fewer than machines have
LOOK = """
import importlib.util, json, os, label_dp.quota as quota
def writable(path):
    try: open(path, "w").close(); return True
    except OSError: return False
print(json.dumps({"processors": quota.processors(), "memory": quota.memory_bytes(), "uid": os.getuid(),
                  "root": writable("/x"), "home": writable(os.environ["HOME_OF_PARTY"] + "/.look")}))
"""
CONNECT = 'PGPASSWORD=$(cat "$PARTY_PASSWORD_FILE") psql -h 127.0.0.1 -U "$PARTY_ROLE" -d "$PARTY_ROLE"'
ROLE = "SELECT rolsuper OR rolcreatedb OR rolcreaterole FROM pg_roles WHERE rolname = current_user"


def build(rig: Rig) -> str:
    """build all images."""
    rig.engine.compose("build", *(["--no-cache"] if rig.cold else []), profile="demo")
    sizes = {name: int(rig.engine.docker("image", "inspect", "--format", "{{.Size}}", name)) for name in IMAGES}
    for name in ABSENT:
        if sizes[name] > LARGEST:
            raise Failed(f"{name} has {sizes[name] / 1e6:.0f} MB, more than {LARGEST / 1e6:.0f} MB")
    how = "from nothing" if rig.cold else "from what is cached"
    return f"{how}: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sizes.items())


def look_inside(rig: Rig) -> str:
    """what an image has and is."""
    for name, absent in ABSENT.items():
        config = json.loads(rig.engine.docker("image", "inspect", name))[0]["Config"]
        if config["User"] != "10001:10001" or config["Labels"].get("org.opencontainers.image.licenses") != "Apache-2.0":
            raise Failed(f"{name} runs as {config['User']!r}, with the labels {config['Labels']}")
        find = " ".join(f"-o -path '*-packages/{package}'" for package in absent.split())
        tests = "-path '*-packages/*' -a \\( -name tests -o -name test \\)"
        there = f"find / -xdev \\( {tests} {find} -o -name 'pip3*' \\) -print"
        run = rig.engine.docker("run", "--rm", "--network=none", name, "sh", "-c", f"{there} 2>/dev/null; true")
        if run.strip():
            raise Failed(f"{name} has {run.split()[:5]}")
    return "numeric user, licence; no installer, no tests, nothing of the other party's heaviest libraries"


def rebuilt(rig: Rig) -> str:
    """the image again after an edit of a source."""
    context = rig.folder / "context"
    context.mkdir()
    for name in COPIED:
        source = rig.engine.root / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, context / name)
    with (context / "shared/label_dp/errors.py").open("a", encoding="utf-8") as file:
        file.write("\n# edited\n")
    argument = rig.engine.environment.get("PYTHON_IMAGE")
    arguments = ["--build-arg", f"PYTHON_IMAGE={argument}"] if argument else []
    start = time.monotonic()
    rig.engine.docker("build", "-q", *arguments, "-f", str(context / "deploy/labels_party.Dockerfile"), str(context))
    took = time.monotonic() - start
    if took > REBUILT_SECONDS:
        raise Failed(f"{took:.0f} s, more than {REBUILT_SECONDS:g} s")
    return f"{took:.0f} s"


def up(rig: Rig) -> str:
    """deploy/secrets.sh and docker compose up --build --detach."""
    subprocess.run([str(rig.engine.root / "deploy" / "secrets.sh"), str(rig.secrets)], check=True)
    rig.engine.compose("up", "--build", "--detach")
    return rig.ready()


def confined(rig: Rig) -> str:
    """the limits of a service, seen from inside."""
    told = []
    for party in PARTIES:
        home = f"HOME_OF_PARTY=/var/lib/{party}/home"
        seen = json.loads(rig.engine.compose("exec", "-T", "-e", home, party, "python", "-c", LOOK))
        if (
            seen["root"]
            or not seen["home"]
            or seen["uid"] != 10001
            or seen["processors"] != PROCESSORS
            or seen["memory"] > 2 << 30
        ):
            raise Failed(f"{party}: {seen}")
        told.append(f"{party} {seen['processors']} processor, {seen['memory'] / 2**20:.0f} MiB")
    for party in ("labels", "features"):
        connect = f'{CONNECT} -Atc "{ROLE}"'
        if rig.engine.compose("exec", "-T", f"{party}-db", "sh", "-c", connect).strip() != "f":
            raise Failed(f"the role of {party}-db may do more than own its database")
        other = "features" if party == "labels" else "labels"
        reach = f"import socket; socket.create_connection(('{other}-db', 5432), 3)"
        try:
            rig.engine.compose("exec", "-T", f"{party}-party", "python", "-c", reach)
        except Failed:
            continue
        raise Failed(f"{party}-party reaches {other}-db")
    return ", ".join(told) + "; root read-only; roles without rights; no party reaches the other's database"


def secret(rig: Rig) -> str:
    """passwords are in files of those who need them, and in no environment."""
    known = {path.name: path.read_text(encoding="utf-8").strip() for path in rig.secrets.iterdir()}
    for service in (*PARTIES, *DATABASES):
        container = rig.engine.compose("ps", "--quiet", service).strip()
        inspected = rig.engine.docker("inspect", container)
        shown = [name for name, value in known.items() if value in inspected]
        given = rig.engine.compose("exec", "-T", service, "ls", "/run/secrets").split()
        if shown or not given or not all(name.startswith(service.split("-")[0]) for name in given):
            raise Failed(f"{service} shows {shown} and is given {given}")
    return f"{len(known)} secrets; each service has its own party's"


def demo_twice(rig: Rig) -> str:
    """the demo, twice."""
    before = rig.containers()
    for _ in range(2):
        rig.engine.compose("run", "--build", "--rm", "-T", "demo", "true", profile="demo")
        rig.play_demo()
    if (after := rig.containers()) != before:
        raise Failed(f"a command made a party anew: {before.split()}, then {after.split()}")
    return f"{rig.clicks:,} clicks each; the parties ran on"


def try_next(rig: Rig) -> str:
    """what the demo says to try next, and the export of its files."""
    message = ("/demo-output/message.parquet", "--labels-key", "/demo-output/labels-party.pub")
    rig.engine.demo("labels-party", "inspect", *message)
    rig.engine.demo("features-party", "verify", *message)
    names = rig.engine.demo("sh", "-c", "tar -C /demo-output -c . | tar -t").split()
    if not {"./results.json", "./message.parquet", "./statement.html"} <= set(names):
        raise Failed(f"the archive has {names}")
    return f"inspect, verify, {len(names)} files"


def killed(rig: Rig) -> str:
    """a kill of the labels party in the middle of a draw, and a restart of its database."""
    log = rig.folder / "demo.log"
    with log.open("wb") as file:
        words = rig.demo_words(50_000)
        running = subprocess.Popen(
            ["docker", "compose", "--profile", "demo", "run", "--rm", "-T", "demo", *words],
            cwd=rig.engine.root,
            env=rig.engine.variables(),
            stdout=file,
            stderr=file,
        )
        try:
            said(log, "each label is drawn once", running)
            rig.engine.compose("kill", "--signal", "KILL", "labels-party")
            rig.engine.compose("start", "labels-party")
            running.wait(600)  # it may have waited, or given up
        finally:
            running.kill()
    rig.ready()
    rig.engine.compose("restart", "--timeout", "10", "labels-db")
    end = time.monotonic() + READY_SECONDS
    while (states := rig.states()) != {"published"}:
        if time.monotonic() > end:
            raise Failed(f"releases stay {states}")
        time.sleep(1)
    ended = "waited and ended well" if running.returncode == 0 else "gave up"
    return f"the demo {ended}; every release is published; {one_history(rig)}"


def replica(rig: Rig) -> str:
    """a second labels party that only answers, on the same home and database."""
    name = "label-dp-replica"
    off = ("-e", "LABELS_PARTY_WORKER=false")
    rig.engine.compose("run", "--detach", "--no-deps", "--name", name, *off, "labels-party")
    try:
        end = time.monotonic() + READY_SECONDS
        while rig.engine.docker("inspect", "-f", "{{.State.Health.Status}}", name).strip() != "healthy":
            if time.monotonic() > end:
                raise Failed(rig.engine.docker("logs", name)[-1500:])
            time.sleep(0.5)
        first, second = rig.releases(), rig.releases(name)
    finally:
        rig.engine.docker("rm", "--force", name)
    same_releases(first, second)
    return f"the same {len(first)} releases"


def restored(rig: Rig) -> str:
    """a backup while the service runs, the loss of home and database, and a restore."""
    if " backup " not in rig.engine.compose("exec", "-T", "labels-party", "labels-party", "--help"):
        return "not tried: this version has no command `labels-party backup`"
    passphrase, before = secrets.token_hex(16).encode(), rig.releases()
    folder = rig.folder / "backup"
    folder.mkdir(mode=0o755)
    rig.engine.compose("exec", "-T", "labels-party", "sh", "-ec", TAKE, given=passphrase)
    rig.engine.compose("cp", "labels-party:/var/lib/labels-party/taken", str(folder / "taken"))
    (folder / "features.json").write_text(features_export(rig), encoding="utf-8")
    for file in folder.iterdir():
        file.chmod(0o444)
    users = ("labels-party", "labels-db", "labels-mail", "demo-labels-keys")
    rig.engine.compose("rm", "--stop", "--force", *users, profile="demo")
    rig.engine.docker("volume", "rm", f"{PROJECT}_labels-home", f"{PROJECT}_labels-db")
    rig.engine.compose("up", "--detach", "--wait", "labels-db")
    words = ("run", "--rm", "--no-deps", "-T", "--volume", f"{folder}:/backup:ro", "labels-party", "sh", "-ec")
    rig.engine.compose(*words, BRING_BACK, given=passphrase)
    rig.engine.compose("up", "--detach")
    rig.ready()
    same_releases(before, rig.releases())
    return f"{(folder / 'taken').stat().st_size / 1e6:.1f} MB; the same {len(before)} releases; {one_history(rig)}"


def stopped_and_started(rig: Rig) -> str:
    """down, up and the demo again: homes, databases and keys stay."""
    rig.engine.compose("down", profile="demo")
    rig.engine.compose("up", "--detach")
    took = rig.ready()
    rig.play_demo()
    return took


def taken_away(rig: Rig) -> str:
    """down --volumes takes all volumes together."""
    rig.engine.compose("down", "--volumes", profile="demo")
    left = rig.engine.docker("volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
    if left.strip():
        raise Failed(f"left over: {left.split()}")
    return "none is left"


STEPS: tuple[Callable[[Rig], str], ...] = (
    build,
    look_inside,
    up,
    confined,
    secret,
    started,
    at_rest,
    demo_twice,
    try_next,
    under_load,
    one_history,
    killed,
    replica,
    restored,
    stopped_and_started,
    rebuilt,
    taken_away,
)
