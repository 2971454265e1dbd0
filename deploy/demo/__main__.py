"""`python -m deploy.demo`, what `make demo` runs: options, services, the story, and an orderly end in any event."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from deploy.demo.folder import prepare, shown
from deploy.demo.services import SHARED_CORES, Service
from deploy.demo.telling import Teller
from shared.errors import InvalidInput, LabelDPError
from shared.privacy import Epsilon

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FEWEST, MOST = 500, 5_000_000


class Stopped(LabelDPError):
    """The visitor, or the system, ended the demo early."""

    exit_code = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message}; --help lists the options.")


def parser() -> argparse.ArgumentParser:
    """The options of the demo."""
    made = _Parser("python -m deploy.demo", description="An advertiser and a publisher, in about a minute.")
    made.add_argument("--clicks", type=int, default=200_000, help="clicks with a label; a quarter more are held out")
    made.add_argument("--epsilon", default="1", help="ε of each release; the lifetime budget is twice that")
    made.add_argument("--out", type=Path, default=Path("demo-output"), help="folder; an earlier demo's is replaced")
    made.add_argument("--seed", type=int, default=1, help="of the made-up clicks; privacy noise is never seeded")
    made.add_argument("--json", action="store_true", help="print the results as one JSON document instead")
    made.add_argument("--labels-url", help="use this running labels party")
    made.add_argument("--features-url", help="use this running features party")
    made.add_argument("--keys", type=Path, help="folder of keys for the two running services")
    return made


def main(words: Sequence[str] | None = None) -> None:
    """Play the demo. Raises LabelDPError with one sentence for the visitor."""
    given = parser().parse_args(words)
    if len({part is None for part in (given.labels_url, given.features_url, given.keys)}) == 2:
        raise InvalidInput("--labels-url, --features-url and --keys go together: give all three or none.")
    if not FEWEST <= given.clicks <= MOST:
        raise InvalidInput(f"--clicks must lie between {FEWEST:,} and {MOST:,}.")
    if not 0 <= given.seed < 1 << 32:
        raise InvalidInput("--seed must lie between 0 and 4294967295.")
    epsilon = Epsilon.parse(given.epsilon, positive=True, name="--epsilon")
    os.environ.update(SHARED_CORES)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ε must not end the story
    with orderly(prepare(given.out), own=given.keys is None):
        data = _play(given, epsilon, Teller(silent=given.json))
    if given.json:
        print(json.dumps(data, ensure_ascii=False, indent=2))


@contextlib.contextmanager
def orderly(folder: Path, own: bool) -> Iterator[None]:
    """Every signal to stop ends like Ctrl-C does; a failure of services of our own says where the logs are."""

    def stop(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    for number in SIGNALS[1:]:
        signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt:
        ended = "both services have ended" if own else "the services run on"
        raise Stopped(f"stopped before the end of the story; {ended}.") from None
    except LabelDPError as error:
        if own:
            error.detail = f"{error.detail} The services' logs are in {shown(folder / 'logs')}."
        raise


def _play(given: argparse.Namespace, epsilon: Epsilon, teller: Teller) -> dict[str, Any]:
    # imported here, so that help and refused options are instant
    from deploy.demo import ending, story
    from deploy.demo.comparison import compare
    from deploy.demo.scene import Access, Scene, simulate

    folder, own, labels, tag = given.out, given.keys is None, None, ""
    teller.heading(f"Label-DP demo: an advertiser, a publisher, {given.clicks:,} clicks. All of it is made up.")
    with contextlib.ExitStack() as stack:
        if own:
            labels, access = stack.enter_context(_own_services(folder, teller))
        else:
            access, tag = Access.from_folder(given.labels_url, given.features_url, given.keys), secrets.token_hex(3)
            teller.step("Both", "have their services running already")
            teller.say(f"{access.labels_url} and {access.features_url}; names of this run end in {tag}.")
        with teller.bar("making up clicks"):
            log = simulate(given.clicks, given.seed, folder / "clicks", tag)
        scene = Scene(teller, folder, epsilon, access, log, tag)
        stack.enter_context(scene.http)
        outcome = story.tell(scene)
        rows = compare(scene, outcome)
        ending.audits(scene, labels)
        if own:
            shutil.copytree(folder / "features-party" / "models" / outcome.model, folder / "model")
    ending.show_table(scene, rows)
    ending.guarantee(scene, outcome)
    data = ending.results(scene, outcome, rows, given.seed)
    ending.show_end(scene)
    return data


@contextlib.contextmanager
def _own_services(folder: Path, teller: Teller) -> Iterator[tuple[Service, Any]]:
    """Both parties as processes with homes in the folder, keys made and handed over; stopped whatever happens."""
    from deploy.demo.scene import Access

    logs, kernels = folder / "logs", folder / ".numba"
    labels = Service("labels-party", "LABELS_PARTY_", folder / "labels-party", logs / "labels-party.log", kernels)
    features = Service(
        "features-party", "FEATURES_PARTY_", folder / "features-party", logs / "features-party.log", kernels
    )
    public = [service.home.absolute() / "keys" / "signing.pub" for service in (labels, features)]
    receipts = ("--audience", "features-party", "--receipt-key", str(public[1]))

    def key(service: Service, role: str, *more: str) -> str:
        return service.run("apikey", "create", "--role", role, *more).strip()

    teller.step("Both", "start their services, each with a folder and keys of its own")
    try:
        with teller.bar("starting"):
            owner, ingest = key(labels, "owner"), key(labels, "ingest")
            labels.launch()
            features.run("pin-key", str(public[0]))
            trainer, auditor = key(features, "trainer"), key(features, "auditor")
            features.launch()
            features.await_ready()
            reader = key(labels, "features", *receipts)
            labels.await_ready()
        teller.say(f"Labels party (the advertiser's):   {labels.url}")
        teller.say(f"Features party (the publisher's):  {features.url}")
        teller.say("They gave each other their public keys, and the publisher an API key. They share nothing else.")
        yield labels, Access(labels.url, features.url, owner, ingest, reader, trainer, auditor, *public)
    finally:
        for number in SIGNALS:  # a second Ctrl-C must not leave a service behind
            signal.signal(number, signal.SIG_IGN)
        features.stop()
        labels.stop()


if __name__ == "__main__":
    try:
        main()
    except LabelDPError as refusal:
        print(f"error: {refusal.detail}", file=sys.stderr)
        sys.exit(refusal.exit_code)
