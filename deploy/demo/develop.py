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
from deploy.demo.services import LOOPBACK, Service, end, program

ROOT = Path(__file__).resolve().parents[2]
PARTIES = {"labels-party": ("LABELS_PARTY_", 8001, "owner"), "features-party": ("FEATURES_PARTY_", 8002, "trainer")}
SOURCES = (".py", ".jinja", ".css", ".js")
LOOK_SECONDS = 0.5


def main() -> None:
    """Make the demo's data if there are none, then serve until Ctrl-C."""
    parser = argparse.ArgumentParser("python -m deploy.demo.develop", description=__doc__)
    parser.add_argument("party", choices=PARTIES)
    parser.add_argument("--out", type=Path, default=Path("develop-output"), help="folder of the data, kept")
    parser.add_argument("--clicks", type=int, default=2000, help="clicks with a label, made once")
    parser.add_argument("--port", type=int, help="8001 and 8002 by default")
    options = parser.parse_args()
    prefix, port, role = PARTIES[options.party]
    whole = options.out / "made"  # a demo that was stopped leaves half of the data
    if not whole.is_file():
        print(f"making {options.clicks:,} clicks in {shown(options.out)} (once, a minute)", flush=True)
        demo = ["-m", "deploy.demo", "--clicks", str(options.clicks), "--out", str(options.out), "--json"]
        if subprocess.run([sys.executable, *demo], check=False, stdout=subprocess.DEVNULL).returncode:
            sys.exit(1)  # the demo has said why
        whole.touch()
    service = Service(
        options.party, prefix, options.out / options.party, options.out / "unused.log", options.out / ".numba"
    )
    print(f"the API key of role {role} is in {shown(options.out / 'keys' / f'{role}.key')}", flush=True)
    command = [str(program(options.party)), "serve", "--host", LOOPBACK, "--port", str(options.port or port)]
    folders = [ROOT / "shared", ROOT / options.party.replace("-", "_")]
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
                end(process)
                process, state = subprocess.Popen(command, env=environment), now
    finally:
        end(process)


def _state(folders: Sequence[Path]) -> dict[Path, int]:
    """When each source file was written last."""
    times = {}
    for path in (path for folder in folders for path in folder.rglob("*") if path.suffix in SOURCES):
        with contextlib.suppress(FileNotFoundError):  # an editor replaces files
            times[path] = path.stat().st_mtime_ns
    return times


if __name__ == "__main__":
    main()
