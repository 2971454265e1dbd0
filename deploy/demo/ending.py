"""The end of the story: the table, where the guarantee lies, the files, and what to try next."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from deploy.demo.clicks import LABEL
from deploy.demo.folder import shown, typed
from deploy.demo.services import program
from deploy.demo.telling import WIDTH, Teller
from label_dp.cli.layout import lines, number
from label_dp.documents.statement_text import in_words, odds_factor, surest
from label_dp.privacy import Epsilon

HEADER = ["mechanism", "outputs", "ε for prior", "label MSE", "test MSE", "gain"]
FILES = {
    "message.parquet": "the message, with its manifest beside it",
    "statement.html": "a page: what left, to whom, what ε means",
    "labels-party-audit.dsse.json": "the advertiser's ledger",
    "features-party-audit.dsse.json": "the publisher's",
    "labels-party.pub": "verifies the message and the ledger",
    "features-party.pub": "verifies the publisher's",
    "model": "the trained model and its card",
    "clicks": "made-up features, revenue, held-out truth",
    "results.json": "the table for programs",
}


def show_table(t: Teller, results: dict[str, Any]) -> None:
    """The comparison for people, and how to read it; exact figures are in results.json."""
    t.heading(f"The same {results['clicks']:,} clicks, every mechanism at ε = {results['epsilon']}")
    rows = []
    for row in results["table"]:
        errors = [number(round(row[name])) for name in ("label_mse", "test_mse")]
        prior = row["epsilon"]["prior"] if row["epsilon"] else ""
        rows.append([row["mechanism"], number(row["outputs"]), prior, *errors, f"{row['gain']:.0%}"])
    t.show("\n".join(lines("", HEADER, rows, WIDTH)) + "\n", indent="")
    t.say(
        f"test MSE: squared error of the model on {results['held_out_clicks']:,} later clicks. gain: its share of the "
        f"way from the mean for every click ({results['constant_mse']:,.0f}) to a model of the true labels. label MSE: "
        "expected squared error of one label as the model is trained on it, by the model's card."
    )
    t.say("A correction costs no ε. Its labels are noisier one by one, but right on average, and a model averages.")


def show_guarantee(t: Teller, results: dict[str, Any]) -> None:
    """Where the promise lies, with the figures of this very message."""
    epsilon, paid = (Epsilon.parse(text) for text in (results["epsilon"], results["table"][1]["epsilon"]["randomize"]))
    t.heading("Where the guarantee lies")
    t.say(
        "In the channel. Whatever the true revenue of a click, the odds of every value in the message differ by a "
        f"factor of at most e^{paid} = {odds_factor(paid)}. The rest of ε paid for the prior."
    )
    t.say(
        "In the guess. Somebody who is right about one click in 50 of 100 cases is right in at most "
        f"{surest(epsilon, Fraction(1))} after the message, with all features and unlimited time. {in_words(epsilon)}"
    )
    t.say("In the ledger. ε was charged before the draw. Trainings and predictions use the message alone, at no ε.")
    t.say("In the noise. It comes from the operating system. The same --seed gives the same clicks and other labels.")


def show_end(t: Teller, folder: Path, results: dict[str, Any], within: list[str]) -> None:
    """The folder with the results in it, and commands that work with what lies there, after the words `within`."""
    there = {file: why for file, why in FILES.items() if (folder / file).exists() or file == "results.json"}
    results |= {"seconds": round(t.elapsed, 1), "files": list(there)}
    text = json.dumps(results, ensure_ascii=False, indent=2)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    t.heading(f"Done in {t.elapsed:.0f} s. Everything lies in {shown(folder)}/")
    t.show("\n".join(f"{file:<32}{why}" for file, why in there.items()))
    t.show("\nTry next", indent="")
    labels, features = ([*within, name] if within else [program(name)] for name in ("labels-party", "features-party"))
    message = (folder / "message.parquet", "--labels-key", folder / "labels-party.pub")
    t.show(f"# see mechanism, bins, ε and audiences\n{typed(*labels, 'inspect', *message)}")
    t.show(f"# check it as the publisher does\n{typed(*features, 'verify', *message)}")
    if within:
        t.show(
            f"# all of these files, out of the container\n{typed(*within, 'tar', '-C', folder, '-c', '.')} > files.tar"
        )
    if "model" in there:
        truth = ("--examples", folder / "clicks" / "held-out.parquet", "--label-column", LABEL)
        signer = f"FEATURES_PARTY_MODEL_KEY={shown(folder / 'features-party.pub')}"
        named = [*within, "env", signer, features[-1]] if within else [signer, *features]
        evaluate = typed(*named, "evaluate", "--model", folder / "model", *truth)
        t.show(f"# test the model on clicks that it has not seen (possible on files only)\n{evaluate}")
    again = "" if within else "make demo ARGS='--clicks 50000 --stay' has other figures, and pages for a browser; "
    t.show(f"# {again or 'other figures: --epsilon 0.5 or --clicks 50000; '}next: deploy/guides/")


def show_pages(t: Teller, urls: tuple[str, str], keys: Path) -> None:
    """Where to look while both services stay, and whose key opens what. The keys themselves are not printed."""
    t.heading("Both services stay. Open their pages in a browser, Ctrl-C ends them")
    for party, url, key in zip(("advertiser", "publisher"), urls, ("owner.key", "trainer.key"), strict=True):
        t.show(f"{party:<12}{url}/   paste the API key in {shown(keys / key)}")
