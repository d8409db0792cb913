"""`escrowmq events`: what happens in a running broker, as it happens."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import click

from escrowmq.admin.http.broker import BrokerRefused, BrokerUnavailable, RemoteBroker
from escrowmq.admin.http.listing import BadQuery
from escrowmq.cli.options import data_dir_option
from escrowmq.evidence.feed import Feed, FeedEvent, kinds_of, place_of
from escrowmq.journal.errors import JournalDamaged
from escrowmq.text import printable

AGAIN_SECONDS = 1.0
"""The time between two attempts to reach a broker that does not answer."""


@click.command()
@data_dir_option
@click.option("--kind", "kinds", default="", metavar="KIND,…", help="Kinds of events, or groups of kinds.")
@click.option("--from", "seen", metavar="ID", help="Begin after the event with this id, or at this LSN.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def events(data_dir: Path, kinds: str, seen: str | None, as_json: bool) -> None:
    """Show what happens in a running broker, until Ctrl-C.

    Events are declarations and deletions, users and permissions, policies, prepared branches and decisions, what
    operators do, connections that open and close, and alarms. --kind asks for others: kinds of records, such as
    PUBLISH, or the groups connections, alarms, messages, branches, half messages, links, groups, decisions, names,
    maintenance and other. If the broker stops, the command waits until it runs again, and goes on.

    \b
    Examples:
      escrowmq events --data-dir /var/lib/escrowmq
      escrowmq events --kind connections,alarms --json
      escrowmq events --from 8264:5f3c9a1e:17
    """
    try:
        feed = Feed(data_dir, RemoteBroker(data_dir).ask, place_of(seen) if seen else None, kinds_of(kinds))
        asyncio.run(_follow(feed, as_json=as_json))
    except (BadQuery, BrokerRefused, BrokerUnavailable, JournalDamaged) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt as error:
        raise click.Abort from error


async def _follow(feed: Feed, *, as_json: bool) -> None:
    reached = waiting = False
    while True:
        try:
            async with aclosing(feed.events()) as found:
                async for event in found:
                    reached, waiting = True, False
                    if event is not None:
                        click.echo(_json(event) if as_json else line_of_event(event))
        except BrokerUnavailable:
            if not reached:
                raise
            if not waiting:
                click.echo("escrowmq: the broker does not answer; waiting until it does", err=True)
            waiting = True
            await asyncio.sleep(AGAIN_SECONDS)


def line_of_event(event: FeedEvent) -> str:
    """Return an event for people: its time in UTC, its name, and its fields."""
    time = datetime.fromtimestamp(event.time_us / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")
    fields = " ".join(f"{name}={_brief(value)}" for name, value in event.fields.items())
    return printable(f"{time.removesuffix('+00:00')} {event.name} {fields}".rstrip())


def _json(event: FeedEvent) -> str:
    named = {"id": str(event.place), "event": event.name, "time_us": event.time_us}
    return json.dumps(named | {"fields": event.fields}, default=str)


def _brief(value: object) -> str:
    plain = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if plain else json.dumps(value, default=str)
