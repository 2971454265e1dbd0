"""Every command of the README and of every guide is run, and their Python too, on what a demo with few clicks left.

The guides are one session: each goes on in the shell of the one before, so one pair of services serves them all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.demo.services import Service
from tests.support.demo import Told
from tests.support.serving import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
GUIDES = ROOT / "deploy" / "guides"
ADVERTISER, PUBLISHER, OFFICER = (GUIDES / f"{who}.md" for who in ("advertiser", "publisher", "officer"))
SESSION = [ROOT / "README.md", ADVERTISER, PUBLISHER, OFFICER, GUIDES / "which-release.md"]
ROOMS = [ROOT / room / "README.md" for room in ("labels_party", "features_party", "shared", "tests", "deploy")]
MATHEMATICS = [
    ROOT / "features_party/companions/README.md",
    ROOT / "labels_party/companions/README.md",
    ROOT / "labels_party/companions/mechanisms/README.md",
    ROOT / "labels_party/mechanisms/README.md",
    ROOT / "labels_party/companions/mechanisms/isotonic/README.md",
    ROOT / "features_party/training/README.md",
]
COMMUNITY = [ROOT / ".github/CONTRIBUTING.md", ROOT / ".github/SECURITY.md"]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted(GUIDES.glob("*.md")),
    *ROOMS,
    *MATHEMATICS,
    ROOT / "deploy/SECURITY.md",
    *COMMUNITY,
]
RUNBOOK = GUIDES / "runbook.md"  # test_runbook.py runs it
# what each document may be long; a reader gives up before a writer does
LINES = {ROOT / "README.md": 120, ROOT / "tests/README.md": 60, **dict.fromkeys(ROOMS[:3], 100)}
LINES |= dict.fromkeys(MATHEMATICS, 150)
# blocks that no test runs, by their first line: why not
NOT_RUN = {
    "make demo": "it has tests of its own, `make test` is this run, and `make dist` installs each extra from its wheel",
    "pip install '.[labels]'": "needs a machine for each party",
    "deploy/secrets.sh": "needs Docker; `make images` plays it",
    "kubectl create namespace labels-party": "needs a cluster; tests/integration/test_kubernetes.py reads the files",
    "deploy/proxies/authority.sh tls labels.advertiser.example features.publisher.example": "test_proxies.py does it",
    "LABELS_PARTY_DATABASE_URL=postgresql://…": "lines of a file; tests/integration/test_object_store.py starts two",
    "LABELS_PARTY_OIDC_ISSUER=https://sso.advertiser.example/realms/company": "lines of files; test_issuer_tokens.py",
    "labels-party backup --out labels.backup": "test_backup_drill.py plays it with a service and a kill",
    "labels-party audit verify --against features-audit.dsse.json": "the officer's guide runs it on real files",
}
# languages that are shown and not run
SHOWN = {"text"}


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def checkout(told: Told, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder like a checkout after `make demo`: this environment as .venv, a copy of a small demo's output."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(BIN)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copytree(told.out, folder / "demo-output")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.processes
def test_every_shell_command_works_as_written(checkout: Path, programs: Path) -> None:
    parts = [f"echo '=== {page.name}'\n" + "\n".join(blocks(page, "bash")) for page in SESSION]
    script = "\n".join(parts).replace(". .venv/bin/activate\n", f'PATH="{programs}:{BIN}:$PATH"\n')
    assert script.count("labels-party") + script.count("features-party") >= 40
    assert script.count("curl") + script.count("owner ") + script.count("ingest ") + script.count("trainer ") >= 20
    # a command that fails must not leave services that hold the output open
    script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + script
    labels, features = free_port(), free_port()
    script = script.replace("8001", labels).replace("8002", features).replace("_THREADS=2", "_THREADS=1")
    environment = dict(os.environ) | {
        "FEATURES_PARTY_THREADS": "1",
        "LABELS_PARTY_PORT": labels,
        "FEATURES_PARTY_PORT": features,
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "Privatized message",
        "mean squared error",
        "events verified",
        "succeeded",
        "VERIFIED",
        "no longer count",
    ):
        assert said in done.stdout, said
    page = (checkout / "demo-output" / "try" / "statement.html").read_text(encoding="utf-8")
    assert "orders" in page


def test_every_block_is_run_or_says_why_not() -> None:
    """A block without a language, or with one that no test knows, would be a command that nobody runs."""
    unrun = set()
    for page in DOCUMENTS:
        text = page.read_text(encoding="utf-8")
        assert text.count("\n```") % 2 == 0, f"{page} leaves a block open"
        for language, body in re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.M | re.S):
            if language == "sh":
                unrun.add(next(line.split("  ")[0] for line in body.splitlines() if not line.startswith("#")))
            elif language == "bash":
                assert page in (*SESSION, RUNBOOK), f"{page.name}: no session runs it"
            elif language == "python":
                assert page in (ROOT / "README.md", ADVERTISER, PUBLISHER), f"{page.name}: no test runs its Python"
            else:
                assert language in SHOWN, f"{page.name}: a block of language '{language}'"
    assert unrun == set(NOT_RUN)


def test_documents_are_short() -> None:
    for page, most in LINES.items():
        assert len(page.read_text(encoding="utf-8").splitlines()) <= most, page


def test_make_targets_of_all_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCUMENTS)
    for target in {"demo", "test", *re.findall(r"`make ([\w-]+)", text)}:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.processes
def test_the_twelve_lines_of_the_readme_work(tmp_path: Path) -> None:
    """With fewer clicks, so that it takes seconds."""
    (code,) = blocks(ROOT / "README.md", "python")
    assert code.count("20_000") == 2
    program = [sys.executable, "-c", code.replace("20_000", "2_000")]
    environment = dict(os.environ) | {"FEATURES_PARTY_THREADS": "1", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    low, middle, high = (float(number) for number in done.stdout.strip(" []\n").split())
    assert 0 <= low < middle < high <= 60
    (folder,) = [path for path in tmp_path.iterdir() if (path / "statement.html").exists()]
    assert {"advertiser", "publisher"} <= {path.name for path in folder.iterdir()}


@pytest.mark.processes
def test_the_ten_lines_of_python_work(tmp_path: Path) -> None:
    (code,) = blocks(ADVERTISER, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    service = Service("labels-party", "LABELS_PARTY_", tmp_path / "lp", tmp_path / "log", tmp_path / "numba")
    key = service.run("apikey", "create", "--role", "owner").strip()
    service.launch()
    try:
        service.await_ready()
        program = f"URL, OWNER_KEY = {service.url!r}, {key!r}\n{code}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    finally:
        service.stop()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["published", "1", "1"]


@pytest.mark.processes
def test_the_publishers_python_works(checkout: Path, tmp_path: Path) -> None:
    code = "\n".join(blocks(PUBLISHER, "python"))
    demo = checkout / "demo-output"
    names = {
        "MESSAGE": demo / "message.parquet",
        "FEATURES": demo / "clicks" / "features.parquet",
        "LABELS_KEY": demo / "labels-party.pub",
        "MODEL": demo / "model",
        "MODEL_KEY": demo / "features-party.pub",
    }
    given = "\n".join(f"{name} = {str(path)!r}" for name, path in names.items())
    environment = dict(os.environ) | {"FEATURES_PARTY_HOME": str(tmp_path), "FEATURES_PARTY_THREADS": "1"}
    program = [sys.executable, "-c", f"{given}\n{code}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "noise_variance" in done.stdout


def test_links_lead_somewhere() -> None:
    for page in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            found = (page.parent / link).resolve()
            assert found.exists(), f"{page.relative_to(ROOT)}: {link}"


def test_quoted_messages_exist_in_the_code() -> None:
    """A message in the troubleshooting table that nobody says any more would mislead."""
    sources = "".join(
        p.read_text(encoding="utf-8")
        for room in ("labels_party", "features_party", "shared")
        for p in (ROOT / room).rglob("*.py")
    ) + (ROOT / "Makefile").read_text(encoding="utf-8")
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)
    quotes = re.findall(r"^\| `([^`]+)`", (GUIDES / "troubleshooting.md").read_text(encoding="utf-8"), re.M)
    assert len(quotes) > 12
    for quoted in quotes:
        for piece in (part.strip() for part in quoted.split("…")):
            assert piece in sources, piece
