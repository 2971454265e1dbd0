"""Deployment files against the real settings and commands: no engine runs here, so they are parsed and compared."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import features_party.cli
import features_party.settings
import labels_party.cli
import labels_party.settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PARTIES = ("labels-party", "features-party")
SETTINGS: dict[str, Any] = {
    "labels-party": labels_party.settings.Settings,
    "features-party": features_party.settings.Settings,
}
APPS: dict[str, typer.Typer] = {"labels-party": labels_party.cli.app, "features-party": features_party.cli.app}
PORTS = {"labels-party": 8001, "features-party": 8002}
PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def prefix(party: str) -> str:
    return party.upper().replace("-", "_") + "_"


def names(party: str) -> set[str]:
    return {prefix(party) + field.upper() for field in SETTINGS[party].model_fields}


def names_of_files(party: str) -> set[str]:
    """Settings that name a file with a secret in it."""
    fields = SETTINGS[party].model_fields.items()
    return {f"{prefix(party)}{name.upper()}_FILE" for name, field in fields if "SecretStr" in str(field.annotation)}


def dockerfile(party: str) -> Path:
    return DEPLOY / f"{party.replace('-', '_')}.Dockerfile"


def clear(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in set().union(*(names(party) for party in PARTIES)):
        monkeypatch.delenv(known, raising=False)


# --- docker-compose.yml -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return data


def scripts(service: dict[str, Any]) -> Iterator[list[str]]:
    """Every command line of a service: its own, and those inside a shell script."""
    command = service.get("command")
    if command is None:
        return
    if command[:2] != ["sh", "-ec"]:
        yield command
        return
    for line in command[2].splitlines():
        for part in re.split(r"\|\||&&|\$\$?\(|\)|;", line):
            words = shlex.split(part.replace('"', ""), posix=True)
            yield [word for word in words if word != "exec"]


def resolve(party: str, words: list[str]) -> Any:
    """The click command that `words` name, after checking every option. Fails for what does not exist."""
    command: Any = typer.main.get_command(APPS[party])
    rest = list(words)
    while hasattr(command, "commands"):
        assert rest, f"{party} {words}: a subcommand is missing"
        assert rest[0] in command.commands, f"{party} has no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    for word in rest:
        if word.startswith("--"):
            assert word.split("=")[0] in known, f"{party} {words}: no option {word}"
    required = {p.opts[0] for p in command.params if p.required and p.param_type_name == "option"}
    assert required <= {word.split("=")[0] for word in rest}, f"{party} {words}: misses an option"
    return command


def mounts(service: dict[str, Any]) -> list[str]:
    """Volumes and files that a service is given."""
    return [volume.split(":")[0] for volume in service.get("volumes", [])]


def until_redirect(words: list[str]) -> list[str]:
    return words[: words.index(">")] if ">" in words else words


def test_every_setting_in_the_compose_file_exists(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for party in PARTIES:
        used = set(re.findall(rf"\b{prefix(party)}[A-Z0-9_]+\b", text))
        assert used
        assert used <= names(party) | names_of_files(party)


@pytest.mark.processes
@pytest.mark.parametrize("party", PARTIES)
def test_the_settings_of_a_service_load(
    compose: dict[str, Any], party: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clear(monkeypatch)
    side = party.split("-")[0]
    environment = compose["services"][party]["environment"]
    subprocess.run([DEPLOY / "secrets.sh", tmp_path], check=True)
    for name, value in environment.items():
        assert isinstance(value, str), f"{name} is not text and YAML may change it"
        file = tmp_path / value.rpartition("/")[2] if name in names_of_files(party) else value
        if name.endswith("LABELS_API_KEY_FILE"):
            tmp_path.joinpath("labels.key").write_text("lp_key", encoding="utf-8")
        monkeypatch.setenv(name, str(file))
    settings = SETTINGS[party].load()
    assert settings.port == PORTS[party]
    assert settings.host == "0.0.0.0"
    made = compose["services"][f"{side}-db"]["environment"]
    role, password = made["PARTY_ROLE"], (tmp_path / f"{side}-party").read_text(encoding="utf-8")
    assert settings.url == f"postgresql://{role}:{password}@{side}-db:5432/{role}"
    assert made["PARTY_PASSWORD_FILE"] == f"/run/secrets/{side}-party"
    assert made["POSTGRES_PASSWORD_FILE"] == f"/run/secrets/{side}-administrator"


@pytest.mark.processes
def test_secrets_are_made_once_and_kept_from_others(tmp_path: Path, compose: dict[str, Any]) -> None:
    def made() -> dict[str, str]:
        subprocess.run([DEPLOY / "secrets.sh", tmp_path / "secrets"], check=True)
        return {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "secrets").iterdir()}

    first = made()
    assert made() == first
    assert set(first) == set(compose["secrets"])
    assert len(set(first.values())) == len(first)
    assert all(len(value) >= 48 for value in first.values())
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def test_a_service_is_given_the_secrets_of_its_own_party(compose: dict[str, Any]) -> None:
    for name, declared in compose["secrets"].items():
        assert declared == {"file": f"${{SECRETS:-./deploy/secrets}}/{name}"}
    for name, service in compose["services"].items():
        given = set(service.get("secrets", []))
        assert given <= set(compose["secrets"])
        side = name.removeprefix("demo-").split("-")[0]
        assert all(secret.startswith(side) for secret in given), name
        assert all(not secret.endswith("administrator") for secret in given) or name.endswith("-db"), name
        named = {value for key, value in service.get("environment", {}).items() if key.endswith("_FILE")}
        assert {value for value in named if value.startswith("/run/")} == {f"/run/secrets/{secret}" for secret in given}
        plain = {key for key in service.get("environment", {}) if re.search("PASSWORD$|KEY$|DATABASE_URL$", key)}
        assert not plain, f"{name} has a secret in its environment"


@pytest.mark.parametrize("party", PARTIES)
def test_a_service_keeps_its_home_and_is_reached_on_loopback_only(compose: dict[str, Any], party: str) -> None:
    service = compose["services"][party]
    home = service["environment"][f"{prefix(party)}HOME"]
    volume = Path(home).parent  # an empty home may be restored into, and the volume holds the image's kernels
    assert f"{party.split('-')[0]}-home:{volume}" in service["volumes"]
    assert service["ports"] == [f"127.0.0.1:{PORTS[party]}:{PORTS[party]}"]
    assert f"VOLUME {volume}" in dockerfile(party).read_text(encoding="utf-8")
    assert f"EXPOSE {PORTS[party]}" in dockerfile(party).read_text(encoding="utf-8")


def test_the_databases_are_apart(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for party in ("labels", "features"):
        database = services[f"{party}-db"]
        assert database["networks"] == [party]
        assert compose["networks"][party] == {"internal": True}
        assert "ports" not in database
        # its socket answers before a new volume is set up
        assert "pg_isready -q -h 127.0.0.1" in " ".join(database["healthcheck"]["test"])
    for name, service in services.items():
        assert not {"labels", "features"} <= set(service.get("networks", [])), f"{name} sees both databases"


def test_volumes_networks_and_dependencies_are_declared(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for volume in mounts(service):
            assert volume in compose["volumes"] or (ROOT / volume).is_file(), f"{name}: {volume}"
        assert set(service.get("networks", [])) <= set(compose["networks"])
        assert "networks" in service or service["network_mode"] == "none"
        for other, how in service.get("depends_on", {}).items():
            assert other in services
            one_shot = services[other]["restart"] == "no"
            assert how["condition"] == ("service_completed_successfully" if one_shot else "service_healthy")
            # a service of the default profile must not wait for one that is not started
            assert "profiles" in service or "profiles" not in services[other]
    used = {volume for service in services.values() for volume in mounts(service) if not volume.startswith(".")}
    assert used == set(compose["volumes"])


def test_images_are_built_from_files_that_exist(compose: dict[str, Any]) -> None:
    built = [service["image"] for service in compose["services"].values() if "build" in service]
    assert len(built) == len(set(built)), "two services build one image, so each command makes the parties anew"
    for name, service in compose["services"].items():
        if "build" not in service:
            assert service["image"] in built or PINNED.search(service["image"]), name
            continue
        assert service["build"]["args"] == ["PYTHON_IMAGE"]
        file = ROOT / service["build"]["context"] / service["build"]["dockerfile"]
        stages = re.findall(r"^FROM \S+ AS (\S+)", file.read_text(encoding="utf-8"), re.M)
        assert service["build"].get("target", stages[0]) in stages
        for entry in service.get("env_file", []):
            assert entry["required"] is False
            assert (ROOT / f"{entry['path']}.example").exists()


def test_every_container_is_confined(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "cpus", "pids_limit"} <= set(service), name
        assert "privileged" not in service
    for party in PARTIES:
        service = compose["services"][party]
        grace = int(service["stop_grace_period"].removesuffix("s"))
        assert grace >= 2 * SETTINGS[party].model_fields["shutdown_seconds"].default


def test_every_command_is_a_real_one(compose: dict[str, Any]) -> None:
    seen = []
    for service in compose["services"].values():
        for words in scripts(service):
            for party in PARTIES:
                if words and words[0] == party:
                    resolve(party, until_redirect(words[1:]))
                    seen.append(" ".join(words[:2]))
                    assert words[1] != "apikey" or "--name" in words, "pages and audit show the name"
    assert {"labels-party apikey", "features-party apikey", "features-party pin-key", "features-party serve"} <= set(
        seen
    )


def test_keys_are_made_where_they_are_read(compose: dict[str, Any]) -> None:
    services = compose["services"]
    made = {
        name: set(re.findall(r"(?:> |--out |cp \S+ )/handover/(\S+)", services[name]["command"][2]))
        for name in ("labels-mail", "features-mail", "demo-labels-keys", "demo-features-keys")
    }
    party = services["features-party"]
    read = set(re.findall(r"/handover/([\w.-]+)", party["command"][2] + str(party["environment"])))
    assert {"labels.key", "labels-party.pub"} == read
    assert read <= made["labels-mail"]
    source = (DEPLOY / "demo" / "story.py").read_text(encoding="utf-8")
    wanted = set(re.findall(r'"([\w-]+\.(?:key|pub))"', source))
    assert {"owner.key", "trainer.key", "labels-party.pub", "features-party.pub"} <= wanted
    assert wanted <= made["demo-labels-keys"] | made["demo-features-keys"]
    # the key of receipts: without it the labels party keeps none
    assert "--receipt-key /handover/features-party.pub" in services["labels-mail"]["command"][2]
    assert "features-party.pub" in made["features-mail"]


def test_the_demo_is_called_with_options_it_has(compose: dict[str, Any]) -> None:
    from deploy.demo.__main__ import parser

    service = compose["services"]["demo"]
    assert service["profiles"] == ["demo"]
    words = service["command"]
    assert words[:3] == ["python", "-m", "deploy.demo"]
    options = dict(word.split("=", 1) for word in words[3:])
    known = set(parser()._option_string_actions)
    assert set(options) <= known
    for party in PARTIES:
        assert options[f"--{party.split('-')[0]}-url"] == f"http://{party}:{PORTS[party]}"
        assert "between" in compose["services"][party]["networks"]
    mounted = {volume.split(":")[1] for volume in service["volumes"]}
    assert {options["--keys"], options["--out"]} == mounted


# --- Dockerfiles ------------------------------------------------------------------------------------------


def instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("party", PARTIES)
def test_what_a_dockerfile_copies_exists_and_is_not_ignored(party: str) -> None:
    ignored = (dockerfile(party).parent / f"{dockerfile(party).name}.dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    copied = set()
    for word, rest in instructions(dockerfile(party)):
        assert word in {"ARG", "FROM", "LABEL", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE",
                        "HEALTHCHECK", "CMD"}  # fmt: skip
        if word == "COPY" and not rest.startswith("--from="):
            *sources, _ = rest.split()
            copied |= set(sources)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert {f"!{source}", f"!{Path(source).parent}"} & set(ignored), source
    packages = re.search(r"packages = \[([^\]]*)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert packages is not None
    assert set(re.findall(r'"(\w+)"', packages[1])) <= copied, "the wheel needs every package"


@pytest.mark.parametrize("party", PARTIES)
def test_an_image_runs_as_its_own_user_without_build_tools(party: str) -> None:
    parsed = instructions(dockerfile(party))
    ((first, base),) = parsed[:1]
    assert first == "ARG"
    assert PINNED.fullmatch(base.removeprefix("PYTHON_IMAGE="))
    assert {base} == {instructions(dockerfile(other))[0][1] for other in PARTIES}
    stages = [[*rest.split(), "AS", "service"][:3:2] for word, rest in parsed if word == "FROM"]
    assert {image for image, _ in stages} <= {"${PYTHON_IMAGE}", "base", "build"}
    final = parsed[max(i for i, part in enumerate(parsed) if part[0] == "FROM" and "PYTHON_IMAGE" in part[1]) :]
    users = [rest for word, rest in final if word == "USER"]
    assert users[-1] == "10001:10001"
    roots = [i for i, part in enumerate(final) if part == ("USER", "0:0")]
    assert all(("USER", "10001:10001") in final[i:] for i in roots), "root is given back"
    text = dockerfile(party).read_text(encoding="utf-8")
    assert f"useradd --uid 10001 --gid 10001 --home-dir /var/lib/{party}" in text
    commands = " ".join(rest for word, rest in final if word == "RUN")
    assert not re.search(r"apt-get|build-essential|gcc|pip install", commands)
    assert "-name ensurepip" in commands
    (label, *_) = [rest for word, rest in final if word == "LABEL"]
    metadata = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', label))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (metadata["licenses"], metadata["version"]) == (project["license"], project["version"])


@pytest.mark.parametrize("party", PARTIES)
def test_packages_are_installed_by_hashes_before_sources_are_copied(party: str) -> None:
    parsed = instructions(dockerfile(party))
    installs = [
        (i, rest) for i, (word, rest) in enumerate(parsed) if word == "RUN" and "pip" in rest and " -r " in rest
    ]
    assert len(installs) == 2
    for _, rest in installs:
        assert "--require-hashes --no-deps -r /locks/" in rest
    sources = min(i for i, (word, rest) in enumerate(parsed) if word == "COPY" and rest.startswith("shared"))
    assert max(i for i, _ in installs) < sources


@pytest.mark.parametrize("party", PARTIES)
def test_an_image_knows_its_home_port_and_health(party: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clear(monkeypatch)
    parsed = instructions(dockerfile(party))
    environment = dict(pair.split("=", 1) for word, rest in parsed if word == "ENV" for pair in rest.split())
    for name, value in environment.items():
        if name.startswith(prefix(party)):
            assert name in names(party)
            monkeypatch.setenv(name, value)
    settings = SETTINGS[party].load()
    assert settings.port == PORTS[party]
    assert str(settings.home) == f"/var/lib/{party}/home"
    if party == "labels-party":  # the other one compiles nothing
        assert environment["NUMBA_CACHE_DIR"].startswith(f"{settings.home.parent}/")
    health = [rest for word, rest in parsed if word == "HEALTHCHECK"]
    assert len(health) == 1
    assert f"http://127.0.0.1:{settings.probes_port}/healthz" in health[0]
    commands = [rest for word, rest in parsed if word == "CMD"]
    start = yaml.safe_load(commands[-1])
    assert start[0] == party
    resolve(party, start[1:])


# --- sample settings and the README's tables --------------------------------------------------------------

LINE = re.compile(r"^#?([A-Z][A-Z0-9_]+)=(.*)$")


@pytest.mark.parametrize("party", PARTIES)
def test_sample_settings_are_complete_explained_and_load(party: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clear(monkeypatch)
    lines = (DEPLOY / f"{party}.env.example").read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        match = LINE.match(line)
        if match is None:
            assert not line or line.startswith("# ")
            continue
        name, value = match[1], match[2]
        assert name not in found
        found[name] = " ".join(shlex.split(value))
        above = number - 1
        while LINE.match(lines[above]):
            above -= 1
        assert lines[above].startswith("# "), f"{name} has no comment"
    assert set(found) == names(party)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    loaded = SETTINGS[party].load()
    # what is shown as a default is one
    clear(monkeypatch)
    defaults = SETTINGS[party].load()
    fields = set(SETTINGS[party].model_fields) - {
        "home",
        "database_url",
        "data_dir",
        "labels_urls",
        "file_urls",
        "labels_api_key",
        "pkcs11_pin",
        "oidc_client_secret",
        "labels_authority",
        "labels_certificate",
        "model_key",
        "threads",
        "training_memory_mb",
    }
    for field in fields:
        assert getattr(loaded, field) == getattr(defaults, field), field


@pytest.mark.parametrize("party", PARTIES)
def test_the_readme_table_has_every_setting_with_its_default(party: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clear(monkeypatch)
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip("` "): cells[1].strip()
        for line in text.splitlines()
        if line.startswith(f"| `{prefix(party)}")
        for cells in [line.strip("| ").split(" | ")]
    }
    assert set(rows) == names(party)
    defaults = SETTINGS[party].load()
    for name, shown in rows.items():
        value = getattr(defaults, name.removeprefix(prefix(party)).lower())
        if shown.startswith("`") and shown.endswith("`") and not isinstance(value, Path):
            expected = (
                str(value).lower()
                if isinstance(value, bool)
                else f"{value:g}"
                if isinstance(value, float)
                else str(value)
            )
            assert shown == f"`{expected}`", name


def test_commands_of_the_readme_are_real_ones() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
    seen = 0
    for line in lines + re.findall(r"`([^`\n]+)`", text):
        for party in PARTIES:
            for match in re.finditer(rf"(?:^|exec {party} |; ){party} ([a-z][^#`]*)", line):
                words = match[1].split()
                resolve(party, words)
                seen += 1
    assert seen >= 8


@pytest.mark.processes
@pytest.mark.parametrize("party", PARTIES)
def test_the_unit_of_systemd_starts_a_party(party: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "label-dp@.service").read_text(encoding="utf-8").replace("%i", party)
    command = re.search(r"^ExecStart=(\S+) (\S+)$", text, re.M)
    assert command is not None
    assert Path(command[1]).name == party
    resolve(party, [command[2]])
    assert f"EnvironmentFile=/etc/label-dp/{party}.env" in text
    assert SETTINGS[party]().shutdown_seconds < 60 == int(text.partition("TimeoutStopSec=")[2].split()[0])
    if shutil.which("systemd-analyze") is not None:
        program = tmp_path / party
        program.write_text("#!/bin/sh\n", encoding="utf-8")
        program.chmod(0o700)
        unit = tmp_path / f"label-dp@{party}.service"
        unit.write_text(text.replace(command[1], str(program)), encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
        assert "label-dp" not in done.stderr, done.stderr


def test_files_that_the_readme_names_exist() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    head = text.split("## The demo")[0]
    for name in re.findall(r"`([\w./-]+(?:/|Dockerfile|example|yml))`", head):
        assert (DEPLOY / name).exists(), name
