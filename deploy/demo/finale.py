"""The end of the story: the table, what it says, what lies in the folder, and what to try next."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from deploy.demo.comparison import NO_PRIVACY, Row, constant_mse
from deploy.demo.folder import DemoFolder
from deploy.demo.generator import DOMAIN
from deploy.demo.scene import LABEL, Scene, plain
from deploy.demo.story import POPULATION, Outcome
from deploy.demo.telling import WIDTH, columns
from shared.audit.events import CHARGES
from shared.audit.store import verify_export
from shared.errors import Conflict
from shared.message.signing import VerifyingKey

HEADER = ["mechanism", "outputs", "ε prior+labels", "label MSE", "test MSE", "ε left"]


def audits(scene: Scene, rows: list[Row]) -> None:
    """Signed exports of both audit stores, verified and compared, with the keys that verify them."""
    t, f = scene.teller, scene.folder
    t.step("Both", "export their audit stores, signed")
    f.labels_audit.write_bytes(scene.advertiser.owner.audit_export())
    f.features_audit.write_bytes(scene.publisher.auditor.audit_export())
    counts: list[int] = []
    charges: list[dict[str | None, str]] = []
    for source, key, export in (
        (scene.access.labels_key, f.labels_key, f.labels_audit),
        (scene.access.features_key, f.features_key, f.features_audit),
    ):
        shutil.copyfile(source, key)
        events = verify_export(export.read_bytes(), VerifyingKey.load(key))
        counts.append(len(events))
        charges.append({e.subject.release: str(e.split.total) for e in events if e.kind in CHARGES})
    releases = {row.release for row in rows if row.release is not None}
    if any(charges[0].get(release) != charges[1].get(release) for release in releases):
        raise Conflict("The two audit stores disagree on what a release cost; please report this.")
    t.say(
        f"{counts[0]} events of the labels party and {counts[1]} of the features party: every hash, link and signature "
        f"is right, and both state the same ε for each of the {len(releases)} releases."
    )


def show_table(scene: Scene, rows: list[Row]) -> None:
    """The comparison for people, with what it does and does not say."""
    t, o = scene.teller, scene.options
    t.heading(f"The same {o.clicks:,} clicks, every mechanism at ε = {plain(o.epsilon)}")
    t.show(table(rows), indent="")
    t.say("")
    t.say(
        "test MSE: squared error of the trained model on "
        f"{len(scene.held_out):,} later clicks, against their true revenue (clipped to {DOMAIN}). "
        f"Predicting the mean for everybody: {constant_mse(scene):,.0f}."
    )
    t.say(
        "label MSE: expected squared error of one label as the model is trained on it, from the channel, over the true "
        "labels. Truth is known here only because the clicks are made up. ε is rounded in the table, exact in "
        "results.json."
    )
    by = {(row.mechanism, row.correction): row for row in rows}
    raw, fixed = (by[key] for key in by if key[0].startswith("RR-on-Bins"))
    if fixed.test_mse < raw.test_mse:
        t.say(
            f"The correction costs no ε: the same message gives {fixed.test_mse:,.0f} instead of {raw.test_mse:,.0f}. "
            "Its labels are noisier one by one, but right on average, and a model averages."
        )


def table(rows: list[Row]) -> str:
    """The rows at 80 columns; ε is rounded here, and exact in the story and in results.json."""
    return columns(HEADER, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    split = "—" if row.epsilon_prior is None else f"{_rounded(row.epsilon_prior)} + {_rounded(row.epsilon_randomize)}"
    return [
        row.mechanism,
        "—" if row.outputs is None else str(row.outputs),
        split,
        _number(row.label_mse_truth),
        _number(row.test_mse),
        "—" if row.budget_left is None else row.budget_left,
    ]


def _rounded(epsilon: str | None) -> str:
    value = float(epsilon or 0)
    return f"{value:.1e}" if 0 < value < 0.001 else plain(f"{value:.4f}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value < 1e9 else f"{value:.1e}"


def results(scene: Scene, outcome: Outcome, rows: list[Row]) -> dict[str, Any]:
    """What a program reads."""
    o = scene.options
    return {
        "simulated": True,
        "clicks": o.clicks,
        "held_out_clicks": len(scene.held_out),
        "seed": o.seed,
        "epsilon": plain(o.epsilon),
        "epsilon_lifetime": plain(o.lifetime),
        "domain": DOMAIN,
        "population": scene.name(POPULATION),
        "release": outcome.release,
        "model": outcome.model,
        "budget_left": plain(outcome.budget_left),
        "refusals": outcome.refusals,
        "constant_mse": constant_mse(scene),
        "table": [row.as_json() for row in rows],
        "best": min(rows, key=lambda row: row.test_mse).mechanism,
        "reference": NO_PRIVACY,
        "seconds": round(scene.teller.elapsed, 1),
        "files": {
            "message": scene.folder.message.name,
            "labels_key": scene.folder.labels_key.name,
            "features_key": scene.folder.features_key.name,
            "labels_audit": scene.folder.labels_audit.name,
            "features_audit": scene.folder.features_audit.name,
            "model": scene.folder.model.name if scene.folder.model.exists() else None,
            "clicks": scene.folder.clicks.name,
        },
    }


def write_results(folder: DemoFolder, data: dict[str, Any]) -> None:
    """The results as one JSON file of the folder."""
    folder.results.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def show_end(scene: Scene, own_services: bool) -> None:
    """The folder, and three commands that work with what lies in it."""
    t, f = scene.teller, scene.folder
    t.heading(f"Done in {t.elapsed:.0f} s. Everything lies in {f.shown()}/")
    kept = [
        ("message.parquet, .dsse.json", "the message and its signed manifest"),
        ("*-audit.dsse.json, *.pub", "both audit exports, and keys that verify them"),
        ("model/", "the trained model and its card"),
        ("clicks/", "made-up features, revenue, held-out truth"),
        ("results.json", "the table above for programs"),
    ]
    if not own_services:
        kept = [entry for entry in kept if entry[0] != "model/"]
    t.show("\n".join(f"{name:<29}{what}" for name, what in kept))
    t.heading("Try next")
    for why, command in next_commands(f, own_services):
        t.show(f"# {why}\n{_folded(command)}")


def _folded(command: str) -> str:
    """A long command over several lines, each option on its own, still fit to be pasted."""
    return command if len(command) <= WIDTH else command.replace(" --", " \\\n    --")


def next_commands(folder: DemoFolder, own_services: bool) -> list[tuple[str, str]]:
    """Three suggestions that work with the files as they are: (why, command)."""

    def at(path: Path) -> str:
        return shlex.quote(folder.shown(path))

    beside = Path(sys.executable).parent
    labels, features = (shlex.quote(folder.shown(beside / name)) for name in ("labels-party", "features-party"))
    commands = [
        (
            "check the message again, as the publisher would",
            f"{features} verify {at(folder.message)} --labels-key {at(folder.labels_key)}",
        ),
        (
            "check what the labels party has spent, as an auditor would",
            f"{labels} audit verify {at(folder.labels_audit)} --key {at(folder.labels_key)}",
        ),
    ]
    if own_services:
        third = (
            "test the model on clicks it has not seen (possible on files only)",
            f"{features} evaluate --model {at(folder.model)} --examples {at(folder.clicks / 'held-out.parquet')} "
            f"--label-column {LABEL}",
        )
    else:
        third = (
            "see what the message says: bins, mechanism, audiences",
            f"{labels} inspect {at(folder.message)} --labels-key {at(folder.labels_key)}",
        )
    return [*commands, third]
