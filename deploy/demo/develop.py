"""`make develop PARTY=…`: one service on the demo's data in this terminal, started again when a source file changes.

The service has the terminal, so that `breakpoint()` in it is a debugger here. Ctrl-C ends both.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.demo.folder import shown
from deploy.demo.services import LOOPBACK, STOP_SECONDS, Service, program

ROOT = Path(__file__).resolve().parents[2]
PARTIES = {"labels-party": ("LABELS_PARTY_", 8001, "owner"), "features-party": ("FEATURES_PARTY_", 8002, "trainer")}
SOURCES = (".py", ".jinja", ".css", ".js")
LOOK_SECONDS = 0.5


def main() -> None:
    """Make the demo's data if there are none, then serve until Ctrl-C."""
    options = argparse.ArgumentParser("python -m deploy.demo.develop", description=__doc__)
    options.add_argument("party", choices=PARTIES)
    options.add_argument("--out", type=Path, default=Path("develop-output"), help="folder of the data, kept")
    options.add_argument("--clicks", type=int, default=2000, help="clicks with a label, made once")
    options.add_argument("--port", type=int, help="8001 and 8002 by default")
    given = options.parse_args()
    prefix, port, role = PARTIES[given.party]
    if not (given.out / given.party).is_dir():
        print(f"making {given.clicks:,} clicks in {shown(given.out)} (once, a minute)", flush=True)
        seed = [sys.executable, "-m", "deploy.demo", "--clicks", str(given.clicks), "--out", str(given.out), "--json"]
        subprocess.run(seed, check=True, stdout=subprocess.DEVNULL)
    service = Service(given.party, prefix, given.out / given.party, given.out / "unused.log", given.out / ".numba")
    print(f"the API key of role {role} is in {shown(given.out / 'keys' / f'{role}.key')}", flush=True)
    command = [str(program(given.party)), "serve", "--host", LOOPBACK, "--port", str(given.port or port)]
    folders = [ROOT / "shared", ROOT / given.party.replace("-", "_")]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        serve_again(command, service.settings(), folders)


def serve_again(
    command: Sequence[str],
    environment: Mapping[str, str],
    folders: Sequence[Path],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Run `command` until `stopped`; end it and run it again whenever a source file below `folders` changes."""
    process, state = subprocess.Popen(command, env=environment), _state(folders)
    try:
        while not stopped():
            time.sleep(LOOK_SECONDS)
            if (now := _state(folders)) != state:
                print("a source file changed: starting again", flush=True)
                _end(process)
                process, state = subprocess.Popen(command, env=environment), now
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _state(folders: Sequence[Path]) -> dict[Path, int]:
    """When each source file was written last."""
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*") if path.suffix in SOURCES):
        with contextlib.suppress(FileNotFoundError):  # an editor replaces files
            found[path] = path.stat().st_mtime_ns
    return found


if __name__ == "__main__":
    main()
