"""`webhook`: who is told of publications, budget alerts and requests for approval."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from label_dp.cli.output import echo, emit, table
from label_dp.cli.panels import ADMINISTRATION
from label_dp.cli.party_commands import Json
from label_dp.errors import Unavailable
from labels_party.cli.app import app, services

webhook = typer.Typer(help="Signed notices to your own services.", no_args_is_help=True)
app.add_typer(webhook, name="webhook", rich_help_panel=ADMINISTRATION)
Id = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Id of the webhook.")]


def _events() -> str:
    from label_dp.schemas.webhook import EVENTS

    return ", ".join(EVENTS)


@webhook.command("create")
def webhook_create(
    url: Annotated[str, typer.Argument(help="https://host/path, or http on this machine.")],
    population: Annotated[str | None, typer.Option(help="Name or id; default all populations.")] = None,
    event: Annotated[list[str] | None, typer.Option(help=f"{_events()}; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Tell a URL of events (default: all); the secret for checking its signatures is shown once."""
    party = services()

    def store(connection: Any) -> dict[str, Any]:
        found = None if population is None else party.populations.get(connection, population).id
        made: dict[str, Any] = party.webhooks.create(connection, url, event, found, "command line").as_json()
        return made

    made = party.database.write("webhook.create", store)
    made["secret"] = party.webhooks.secret(made["id"])
    emit(made, as_json, lambda: echo(f"{made['id']}\n{made['secret']}"))


@webhook.command("list")
def webhook_list(as_json: Json = False) -> None:
    """Show ids, URLs and events."""
    party = services(existing=True)
    found = [w.as_json() for w in party.database.read("webhook.list", party.webhooks.all)]

    def human() -> None:
        rows = [[w["id"], w["url"], w["population"] or "all", ", ".join(w["events"])] for w in found]
        table("webhooks", ["id", "url", "population", "events"], rows)

    emit(found, as_json, human)


@webhook.command("delete")
def webhook_delete(webhook_id: Id) -> None:
    """Forget a webhook and the notices that were not delivered yet."""
    party = services(existing=True)
    party.database.write("webhook.delete", lambda c: party.webhooks.delete(c, webhook_id))


@webhook.command("test")
def webhook_test(webhook_id: Id, as_json: Json = False) -> None:
    """Send a notice of the event webhook.test now, and say what the endpoint answered."""
    party = services(existing=True)
    notice = party.database.write("webhook.test", lambda c: party.webhooks.test(c, webhook_id))
    party.sender.flush(notice)
    result = party.database.read("webhook.delivery", lambda c: party.webhooks.delivery(c, notice))
    if result["state"] != "delivered":
        raise Unavailable(f"The notice was not delivered: {result['failure'] or 'another sender tries it now'}.")
    emit(result, as_json, lambda: echo(f"{notice}: delivered"))
