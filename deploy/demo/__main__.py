"""`python -m deploy.demo`, what `make demo` runs: options, services, the story, and an orderly end in any event."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.demo.folder import DemoFolder
from deploy.demo.services import SHARED_CORES, Service
from deploy.demo.telling import Teller
from shared.errors import InvalidInput, LabelDPError
from shared.service.cli import run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    clicks: Annotated[int, typer.Option(help="How many clicks have a label; a quarter more are held out.")] = 200_000,
    epsilon: Annotated[str, typer.Option(help="ε of each release; the lifetime budget is twice that.")] = "1",
    out: Annotated[
        Path, typer.Option(help="Folder for everything; an earlier demo's is replaced, any other is refused.")
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Of the made-up clicks; privacy noise is never seeded.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document instead.")] = False,
    labels_url: Annotated[str | None, typer.Option(help="Use this running labels party.")] = None,
    features_url: Annotated[str | None, typer.Option(help="Use this running features party.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder of keys for the two running services.")] = None,
) -> None:
    """An advertiser and a publisher train a model together, under label differential privacy, in about a minute."""
    running = (labels_url, features_url, keys)
    if any(part is not None for part in running) and None in running:
        raise InvalidInput("--labels-url, --features-url and --keys go together: give all three or none.")
    # imported here, so that help and refused options are instant
    from deploy.demo.scene import Options

    os.environ.update(SHARED_CORES)
    options = Options.checked(clicks, epsilon, seed)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ε must not end the story
    folder, teller = DemoFolder(out), Teller(silent=as_json)
    folder.prepare()
    with _orderly(folder, own=labels_url is None):
        data = _play(folder, teller, options, labels_url, features_url, keys)
    if as_json:
        print(json.dumps(data, ensure_ascii=False, indent=2))


class Stopped(LabelDPError):
    """The visitor, or the system, told the demo to stop."""

    exit_code = 130


@contextlib.contextmanager
def _orderly(folder: DemoFolder, own: bool) -> Iterator[None]:
    """Being told to stop ends like Ctrl-C does; a failure of services of our own says where the logs are."""

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
            error.detail = f"{error.detail} The services' logs are in {folder.shown(folder.logs)}."
        raise


def _play(
    folder: DemoFolder,
    teller: Teller,
    options: Any,
    labels_url: str | None,
    features_url: str | None,
    keys: Path | None,
) -> dict[str, Any]:
    from deploy.demo import finale, story
    from deploy.demo.comparison import compare
    from deploy.demo.parties import Access, both
    from deploy.demo.scene import Scene, new_tag, simulate

    own = labels_url is None
    teller.title(f"Label-DP demo: an advertiser, a publisher, {options.clicks:,} clicks. All of it is made up.")
    with contextlib.ExitStack() as stack:
        if labels_url is not None and features_url is not None and keys is not None:
            access, tag = Access.from_folder(labels_url, features_url, keys), new_tag()
            teller.step("Both", "have their services running already")
            teller.say(f"Labels party {labels_url}, features party {features_url}; names of this run end in {tag}.")
        else:
            access, tag = stack.enter_context(_own_services(folder, teller)), ""
        advertiser, publisher = stack.enter_context(both(access, options.clicks))
        with teller.bar("making up clicks"):
            made, held_out = simulate(options, folder, tag)
        scene = Scene(teller, folder, options, access, advertiser, publisher, made, held_out, tag)
        outcome = story.tell(scene)
        rows = compare(scene, outcome)
        finale.audits(scene, rows)
        if own:
            shutil.copytree(folder.features_home / "models" / outcome.model, folder.model)
    data = finale.results(scene, outcome, rows)
    finale.write_results(folder, data)
    finale.show_table(scene, rows)
    finale.show_end(scene, own)
    return data


@contextlib.contextmanager
def _own_services(folder: DemoFolder, teller: Teller) -> Iterator[Any]:
    """Both parties as processes with homes in the folder, keys made and handed over; stopped whatever happens."""
    from deploy.demo.parties import Access

    cache = folder.path / ".numba"
    labels = Service("labels-party", "LABELS_PARTY_", folder.labels_home, folder.logs / "labels-party.log", cache)
    features = Service(
        "features-party", "FEATURES_PARTY_", folder.features_home, folder.logs / "features-party.log", cache
    )
    teller.step("Both", "start their services, each with a folder and keys of its own")
    try:
        with teller.bar("starting"):
            owner, ingest, reader = (_key(labels, role) for role in ("owner", "ingest", "features"))
            labels.launch()
            labels_key = folder.labels_home / "keys" / "signing.pub"
            features.run("pin-key", str(labels_key.absolute()))
            trainer, auditor = (_key(features, role) for role in ("trainer", "auditor"))
            features.launch()
            for service in (labels, features):
                service.await_ready()
        teller.say(f"Labels party (the advertiser's):   {labels.url}")
        teller.say(f"Features party (the publisher's):  {features.url}")
        teller.say("The publisher got two things beforehand: an API key, and the public key that it pinned.")
        yield Access(
            labels_url=labels.url,
            features_url=features.url,
            owner=owner,
            ingest=ingest,
            reader=reader,
            trainer=trainer,
            auditor=auditor,
            labels_key=labels_key,
            features_key=folder.features_home / "keys" / "signing.pub",
        )
    finally:
        # a second Ctrl-C must not leave a service behind
        previous = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
        try:
            for service in (features, labels):
                service.stop()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _key(service: Service, role: str) -> str:
    return service.run("apikey", "create", "--role", role).strip()


if __name__ == "__main__":
    run(app)
