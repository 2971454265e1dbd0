"""`python -m deploy.demo`, what `make demo` runs: options, services, the story, and an orderly end in any event."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from deploy.demo.folder import prepare, shown
from deploy.demo.services import SHARED_CORES, SIGNALS, both
from deploy.demo.telling import CODE, Teller
from label_dp.cli.output import json_text, show_all
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.privacy import Epsilon

FEWEST, MOST = 500, 5_000_000


class DemoStopped(LabelDPError):
    """The visitor, or the system, ended the demo early."""

    exit_code = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message}; --help lists the options.")


def parser() -> argparse.ArgumentParser:
    """The options of the demo."""
    made = _Parser("python -m deploy.demo", description="An advertiser and a publisher, in about a minute.")
    made.add_argument("--clicks", type=int, default=100_000, help="clicks with a label; a quarter more are held out")
    made.add_argument("--epsilon", default="1", help="ε of each release; the lifetime budget is twice that")
    made.add_argument("--out", type=Path, default=Path("demo-output"), help="folder; an earlier demo's is replaced")
    made.add_argument("--seed", type=int, default=1, help="of the made-up clicks; privacy noise is never seeded")
    made.add_argument("--json", action="store_true", help="print the results as one JSON document instead")
    made.add_argument("--stay", action="store_true", help="keep both services for a browser until Ctrl-C")
    made.add_argument("--labels-url", help="use this running labels party")
    made.add_argument("--features-url", help="use this running features party")
    made.add_argument("--keys", type=Path, help="folder of keys for the two running services")
    made.add_argument("--within", default="", help="words that a visitor types before commands that use this folder")
    return made


def main(words: Sequence[str] | None = None) -> None:
    """Play the demo. Raises LabelDPError with one sentence for the visitor."""
    show_all()
    given = parser().parse_args(words)
    if len({part is None for part in (given.labels_url, given.features_url, given.keys)}) == 2:
        raise InvalidInput("--labels-url, --features-url and --keys go together: give all three or none.")
    if given.stay and (given.json or given.keys is not None):
        raise InvalidInput(
            "--stay keeps the demo's own services for a person: leave out --json. Services that you name run on anyway."
        )
    if not FEWEST <= given.clicks <= MOST:
        raise InvalidInput(f"--clicks must lie between {FEWEST:,} and {MOST:,}.")
    if not 0 <= given.seed < 1 << 32:
        raise InvalidInput("--seed must lie between 0 and 4294967295.")
    epsilon = Epsilon.parse(given.epsilon, positive=True, name="--epsilon")
    os.environ.update(SHARED_CORES)
    with orderly(prepare(given.out), own=given.keys is None):
        results = _play(given, epsilon, Teller(silent=given.json))
    if given.json:
        print(json_text(results, indent=2))


@contextlib.contextmanager
def orderly(folder: Path, own: bool) -> Iterator[None]:
    """Every signal to stop ends like Ctrl-C does; a failure of services of our own says where the logs are."""
    for number in SIGNALS[1:]:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        ended = "both services have ended" if own else "the services run on"
        raise DemoStopped(f"stopped before the end of the story; {ended}.") from None
    except LabelDPError as error:
        if own:
            error.detail = f"{error.detail} The services' logs are in {shown(folder / 'logs')}."
        raise


def _play(given: argparse.Namespace, epsilon: Epsilon, t: Teller) -> dict[str, Any]:
    # imported here, so that help and refused options are instant
    import httpx

    from deploy.demo import ending
    from deploy.demo.clicks import write
    from deploy.demo.story import Story

    folder, keys, labels, tag = given.out, given.keys, None, ""
    t.heading(f"Label-DP demo: an advertiser, a publisher, {given.clicks:,} clicks. All of it is made up.")
    with contextlib.ExitStack() as stack:
        if keys is None:
            t.step("Both", "start their services, each with a folder and keys of its own")
            with t.bar("starting"):
                labels, features = stack.enter_context(both(folder))
            keys, urls = folder / "keys", (labels.url, features.url)
            for service in (labels, features):
                t.show(service.typed("serve", "--port", service.url.rpartition(":")[2]), CODE)
            t.say("They gave each other their public keys, and the publisher an API key. They share nothing else.")
        else:
            t.step("Both", "have their services running already")
            tag, urls = f"-{secrets.token_hex(3)}", (given.labels_url, given.features_url)
            t.say(f"Names of this run end in {tag[1:]}.")
        t.say(
            f"owner and backend are LabelsPartyClient('{urls[0]}', KEY) below, trainer and auditor "
            f"FeaturesPartyClient('{urls[1]}', KEY). Keys lie in {shown(keys)}/, tables in {shown(folder / 'clicks')}/."
        )
        # proxies of the visitor's environment have no business between two local services
        http = stack.enter_context(httpx.Client(timeout=httpx.Timeout(60.0, read=300.0), trust_env=False))
        story = Story(t, folder, urls, keys, http, tag)
        with t.bar("making up clicks"):
            clicks, later = write(given.clicks, given.seed, folder / "clicks", tag)
        results = story.tell(epsilon, clicks, later, labels) | {"seed": given.seed}
        ending.show_table(t, results)
        ending.show_guarantee(t, results)
        ending.show_end(t, folder, results, given.within.split())
        if given.stay:
            ending.show_pages(t, urls, keys)
            with contextlib.suppress(KeyboardInterrupt):  # how a visit ends, and no failure
                threading.Event().wait()
    return results


if __name__ == "__main__":
    try:
        main()
    except LabelDPError as refusal:
        print(f"error: {refusal.detail}", file=sys.stderr)
        sys.exit(refusal.exit_code)
