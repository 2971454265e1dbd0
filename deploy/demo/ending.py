"""The end of the story: the audits, the table, where the guarantee lies, and what to try next."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.demo.clicks import DOMAIN
from deploy.demo.comparison import NO_PRIVACY, Row, constant_mse
from deploy.demo.folder import shown
from deploy.demo.scene import LABEL, Scene, plain
from deploy.demo.services import Service
from deploy.demo.story import POPULATION, Outcome
from deploy.demo.telling import WIDTH, table
from shared.errors import Conflict

VERIFIER = Path(__file__).parents[1] / "verify_standalone"
HEADER = ["mechanism", "outputs", "ε prior+labels", "label MSE", "test MSE", "ε left"]
KEPT = {
    "message": ("message.parquet", "the message, with its manifest beside it"),
    "labels_audit": ("labels-party-audit.dsse.json", "the advertiser's ledger"),
    "features_audit": ("features-party-audit.dsse.json", "the publisher's"),
    "labels_key": ("labels-party.pub", "verifies the message and the ledger"),
    "features_key": ("features-party.pub", "verifies the publisher's"),
    "model": ("model", "the trained model and its card"),
    "clicks": ("clicks", "made-up features, revenue, held-out truth"),
}


def audits(scene: Scene, labels: Service | None) -> None:
    """Signed exports of both audit stores, each checked by code that is not the services'."""
    t, at = scene.teller, {name: scene.folder / file for name, (file, _) in KEPT.items()}
    t.step("Auditor", "checks both audit stores")
    shutil.copyfile(scene.access.labels_key, at["labels_key"])
    shutil.copyfile(scene.access.features_key, at["features_key"])
    at["labels_audit"].write_bytes(scene.owner.audit_export())
    at["features_audit"].write_bytes(scene.auditor.audit_export())
    for party in ("labels", "features"):
        words = [sys.executable, str(VERIFIER), "audit", str(at[f"{party}_audit"]), "--key", str(at[f"{party}_key"])]
        if subprocess.run(words, capture_output=True, check=False).returncode != 0:
            raise Conflict(f"The standalone verifier refuses the audit store of the {party} party; please report this.")
    t.say("deploy/verify_standalone, which shares no code with the services, finds every hash, link and rule right.")
    if labels is not None:
        labels.run("audit", "verify", "--against", str(at["features_audit"]))
        t.say("'audit verify --against' finds one history: each ε and each receipt is the same at both parties.")


def show_table(scene: Scene, rows: list[Row]) -> None:
    """The comparison for people, and how to read it."""
    t = scene.teller
    t.heading(f"The same {len(scene.clicks):,} clicks, every mechanism at ε = {plain(scene.epsilon)}")
    t.show(table(HEADER, [cells(row) for row in rows]) + "\n", indent="")
    t.say(
        f"test MSE: squared error of the trained model on {len(scene.held_out):,} later clicks, against their true "
        f"revenue (clipped to {DOMAIN}). A prediction of the mean for every click has {constant_mse(scene):,.0f}."
    )
    t.say(
        "label MSE: expected squared error of one label as the model is trained on it. Truth is known here only "
        "because the clicks are made up. ε is rounded in the table, exact in results.json."
    )
    if rows[1].test_mse < rows[0].test_mse:
        t.say(
            f"The correction costs no ε: the same message gives {rows[1].test_mse:,.0f} instead of "
            f"{rows[0].test_mse:,.0f}. Its labels are noisier one by one, but right on average, and a model averages."
        )


def cells(row: Row) -> list[str]:
    """A row at 80 columns; ε is rounded here, and exact in results.json."""

    def number(value: float) -> str:
        return f"{value:,.0f}" if value < 1e9 else f"{value:.1e}"

    def rounded(epsilon: str) -> str:
        return f"{float(epsilon):.1e}" if 0 < float(epsilon) < 0.001 else plain(f"{float(epsilon):.4f}")

    split = [rounded(part) for part in (row.epsilon_prior, row.epsilon_randomize) if part is not None]
    figures = number(row.label_mse_truth), number(row.test_mse)
    return [row.mechanism, str(row.outputs or "—"), " + ".join(split) or "—", *figures, row.budget_left or "—"]


def guarantee(scene: Scene, outcome: Outcome) -> None:
    """Where the promise lies, with the figures of this very message."""
    t, manifest = scene.teller, outcome.message.manifest
    matrix = manifest.read_channel().matrix()
    ratio = float((matrix.max(axis=0) / matrix.min(axis=0)).max())
    odds = math.exp(-float(str(scene.epsilon)))
    t.heading("Where the guarantee lies")
    t.say(
        "In the channel. The manifest publishes the odds of every output for every revenue. Whatever the true revenue "
        f"of a click, they differ by a factor of at most {ratio:,.4f}. The publisher proved in whole numbers that this "
        f"is at most e^{plain(manifest.split.randomize)}; the rest of ε paid for the prior."
    )
    t.say(
        "In the guess. Somebody who is right about one click in 50 of 100 cases is right in at most "
        f"{100 / (1 + odds):.1f} of 100 after the message, with all features and unlimited time."
    )
    t.say(
        f"In the ledger. ε was charged before the draw. {outcome.budget_left} of {scene.lifetime} is left per click, "
        "and the labels party refused more. The publisher's own store holds the same charge."
    )
    t.say(
        "In the noise. It comes from the operating system and is never seeded: the same --seed gives the same clicks "
        "and other labels. Corrections, trainings and predictions use the message alone, so they cost nothing."
    )


def results(scene: Scene, outcome: Outcome, rows: list[Row], seed: int) -> dict[str, Any]:
    """The figures for a program; also written to results.json."""
    data = {
        "simulated": True,
        "clicks": len(scene.clicks),
        "held_out_clicks": len(scene.held_out),
        "seed": seed,
        "epsilon": plain(scene.epsilon),
        "epsilon_lifetime": scene.lifetime,
        "domain": DOMAIN,
        "population": scene.name(POPULATION),
        "release": outcome.release,
        "model": outcome.model,
        "budget_left": outcome.budget_left,
        "refusals": outcome.refusals,
        "constant_mse": constant_mse(scene),
        "table": [asdict(row) for row in rows],
        "best": min(rows, key=lambda row: row.test_mse).mechanism,
        "reference": NO_PRIVACY,
        "seconds": round(scene.teller.elapsed, 1),
        "files": {name: file if (scene.folder / file).exists() else None for name, (file, _) in KEPT.items()},
    }
    text = json.dumps(data, ensure_ascii=False, indent=2)
    (scene.folder / "results.json").write_text(text + "\n", encoding="utf-8")
    return data


def show_end(scene: Scene) -> None:
    """The folder, and commands that work with what lies in it."""
    t, at = scene.teller, {name: shlex.quote(shown(scene.folder / file)) for name, (file, _) in KEPT.items()}
    t.heading(f"Done in {t.elapsed:.0f} s. Everything lies in {shown(scene.folder)}/")
    there = {file: why for file, why in KEPT.values() if (scene.folder / file).exists()}
    t.show("\n".join(f"{file:<32}{why}" for file, why in (there | {"results.json": "the table for programs"}).items()))
    t.show("\nTry next", indent="")
    python = Path(sys.executable)
    labels, features = (shlex.quote(shown(python.with_name(name))) for name in ("labels-party", "features-party"))
    verifier = f"{shlex.quote(shown(python))} {shlex.quote(shown(VERIFIER))}"
    commands = {
        "see mechanism, bins, ε and audiences of the message": (
            f"{labels} inspect {at['message']} --labels-key {at['labels_key']}"
        ),
        "check it again, as the publisher would": (
            f"{features} verify {at['message']} --labels-key {at['labels_key']}"
        ),
        "check the advertiser's ledger, as an auditor would": (
            f"{verifier} audit {at['labels_audit']} --key {at['labels_key']}"
        ),
        "test the model on clicks that it has not seen (possible on files only)": (
            f"{features} evaluate --model {at['model']} --examples {at['clicks']}/held-out.parquet "
            f"--label-column {LABEL}"
        ),
    }
    for why, command in commands.items():
        if at["model"] not in command or KEPT["model"][0] in there:
            folded = command if len(command) <= WIDTH else command.replace(" --", " \\\n    --")
            t.show(f"# {why}\n{folded}")
    t.show("# other figures: --epsilon 0.5 or --clicks 50000; a day of each party: deploy/guides/")
