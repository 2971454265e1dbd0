"""Scripts of deploy/ that an image, a build or a maintainer runs: each is run here, on a small scale."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql

from deploy.images.engine import STAND_IN_IMAGES, STAND_INS
from tests.support.postgres import server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
pytestmark = pytest.mark.processes


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_database_gets_a_role_that_owns_it_and_may_do_nothing_else(tmp_path: Path) -> None:
    name, password = f"party_{secrets.token_hex(6)}", tmp_path / "password"
    password.write_text('it\'s "secret"; --', encoding="utf-8")
    with server() as url:
        if url is None or shutil.which("psql") is None:
            if os.environ.get("CI"):
                pytest.fail("no PostgreSQL server is reachable, or psql is not installed")
            pytest.skip("no PostgreSQL server is reachable, or psql is not installed")
        with psycopg.connect(url, autocommit=True) as connection:
            at: Any = connection.info
            reached = {"PGHOST": at.host, "PGPORT": str(at.port), "PGPASSWORD": at.password, "POSTGRES_USER": at.user}
            party = {"PARTY_ROLE": name, "PARTY_PASSWORD_FILE": str(password)}
            try:
                done = run("sh", DEPLOY / "database" / "role.sh", **reached, **party)
                assert done.returncode == 0, done.stderr
                rights = "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolcanlogin FROM pg_roles"
                assert connection.execute(f"{rights} WHERE rolname = %s", [name]).fetchone() == (*[False] * 4, True)
                owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s"
                assert connection.execute(owner, [name]).fetchone() == (name,)
                public = "SELECT datacl::text FROM pg_database WHERE datname = %s"
                (granted,) = connection.execute(public, [name]).fetchone() or ("",)
                assert "{=" not in granted  # nobody else may even connect
                assert ",=" not in granted
            finally:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
                connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    mounted = [v for s in compose["services"].values() for v in s.get("volumes", ()) if "role.sh" in str(v)]
    assert mounted == ["./deploy/database/role.sh:/docker-entrypoint-initdb.d/role.sh:ro"] * 2


def test_an_environment_loses_what_no_service_uses(tmp_path: Path) -> None:
    if shutil.which("strip") is None and os.environ.get("CI"):
        pytest.fail("strip is not installed (Debian's package binutils)")
    if shutil.which("strip") is None:
        pytest.skip("strip is not installed (Debian's package binutils)")
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    gone = ["numpy/tests/test_a.py", "pyarrow/include/a.h", "pyarrow/libarrow_flight.so.1", "x/test/b.py"]
    kept = ["numpy/a.py", "pyarrow/libarrow.so.1", "x/testing.py"]
    for name in (*gone, *kept, "matplotlib/mpl-data/sample_data/a.csv"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("x", encoding="utf-8")
    done = run("sh", DEPLOY / "images" / "slim.sh", tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(str(p.relative_to(packages)) for p in packages.rglob("*") if p.is_file()) == sorted(kept)
    for party in ("labels_party", "features_party"):
        text = (DEPLOY / f"{party}.Dockerfile").read_text(encoding="utf-8")
        assert "RUN /slim.sh /opt/label-dp" in text


def test_locks_are_made_of_what_each_party_needs(tmp_path: Path) -> None:
    """With a `uv` that writes down how it was called."""
    program = tmp_path / "uv"
    program.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\n', encoding="utf-8")
    program.chmod(0o755)
    calls = tmp_path / "calls"
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run("sh", DEPLOY / "locks" / "make.sh", PATH=path, CALLS=str(calls), UPGRADE="1")
    assert done.returncode == 0, done.stderr
    asked = {
        line.split("--output-file deploy/locks/")[1].split(".txt")[0]: line for line in calls.read_text().splitlines()
    }
    assert set(asked) == {path.stem for path in (DEPLOY / "locks").glob("*.txt")}
    assert all("--generate-hashes" in line and "--upgrade" in line for line in asked.values())
    assert ["--extra labels" in asked[name] for name in ("labels-party", "features-party")] == [True, False]
    assert ["--extra features" in asked[name] for name in ("labels-party", "features-party")] == [False, True]


def test_the_stand_ins_are_the_images_that_the_engine_is_told_of() -> None:
    assert STAND_INS.name == "stand_ins.sh"
    assert run("bash", "-n", STAND_INS).returncode == 0
    text = STAND_INS.read_text(encoding="utf-8")
    assert {f"docker build -q -t {image}" in text for image in STAND_IN_IMAGES.values()} == {True}


def test_make_images_says_what_it_takes() -> None:
    """It needs an engine; that it plays the compose file is seen where one is (`make images`)."""
    done = run(sys.executable, "-m", "tests.images", "--help")
    assert done.returncode == 0, done.stderr
    assert "--stand-ins" in done.stdout
