"""The proxies of deploy/proxies as processes, each before one service, with certificates of the test's authority."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILES = Path(__file__).parents[2] / "deploy" / "proxies"
# Debian puts nginx where only root looks for it
WHERE = os.environ.get("PATH", "") + ":/usr/sbin"
NAME = "localhost"
NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/answers; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {server}
}}
"""


def installed(proxy: str) -> str:
    """The program of a proxy; skips where there is none, and fails on CI, which installs both."""
    found = shutil.which(proxy, path=WHERE)
    if found is None:
        missing = f"{proxy} is not installed; on Debian: apt-get install {proxy}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def authority(folder: Path, *names: str) -> Path:
    subprocess.run([str(FILES / "authority.sh"), str(folder), *names], check=True)
    return folder


def trusting(certificates: Path, client: str | None) -> ssl.SSLContext:
    """What a client of the authority takes as `verify`."""
    context = ssl.create_default_context(cafile=certificates / "authority.pem")
    if client is not None:
        context.load_cert_chain(certificates / client / "client.pem")
    return context


@contextmanager
def front_door(proxy: str, folder: Path, certificates: Path, service: str) -> Iterator[str]:
    """The proxy before `service` (http://…); yields its URL. `folder` keeps what it writes."""
    program = installed(proxy)
    folder.mkdir()
    tls = folder / "tls"
    shutil.copytree(certificates / NAME, tls)
    shutil.copy(certificates / "authority.pem", tls)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    at = service.removeprefix("http://")
    if proxy == "nginx":
        server = (FILES / "nginx.conf.template").read_text(encoding="utf-8")
        values = {"NAME": NAME, "LISTEN": port, "SERVICE": at, "TLS": str(tls), "CLIENTS": "on"}
        for name, value in values.items():
            server = server.replace(f"${{{name}}}", value)
        file = folder / "nginx.conf"
        file.write_text(NGINX.format(folder=folder, server=server), encoding="utf-8")
        words, environment = [program, "-c", str(file), "-p", str(folder)], {}
    else:
        words = [program, "run", "--adapter", "caddyfile", "--config", str(FILES / "Caddyfile")]
        environment = {"SITE": f"{NAME}:{port}", "SERVICE": at, "TLS": str(tls)}
        environment |= {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, env=os.environ | environment, stdout=log, stderr=log)
        try:
            _listening(int(port), process, folder / "log")
            yield f"https://{NAME}:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _listening(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace"))
