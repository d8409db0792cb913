"""The command line of `escrowmq perf`."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from escrowmq.perf.errors import PerfError, WrongUsage
from escrowmq.perf.report import LiveDisplay, document, summary
from escrowmq.perf.runner import run
from escrowmq.perf.url import parse_url
from escrowmq.perf.workload import (
    AMQP010,
    AMQP091,
    AMQP10,
    COMPLETION,
    EXPLICIT,
    FIRST,
    MAX_SIZE,
    ONE_PHASE,
    PRESETTLED,
    ROCKETMQ,
    ROCKETMQ_GRPC,
    SCENARIOS,
    SECOND,
    TWO_PHASE,
    workload_of,
)

_AFTER_DURATION = 120.0
"""The time (s) beyond its duration in which a run may confirm and deliver its last messages."""
_BY_COUNT = 600.0
_INTERRUPTED = 130
SCHEMES = {ROCKETMQ: "rocketmq", ROCKETMQ_GRPC: "rocketmq+grpc"}
"""The schemes of URLs for protocols that are not AMQP."""

_POSITIVE = click.IntRange(min=1)
_COUNT = click.IntRange(min=0)
_SECONDS = click.FloatRange(min=0, min_open=True)


def _arguments(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int | str] | None:
    """Queue arguments. A value that looks like a number is passed as a number."""
    found: dict[str, int | str] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        found[name] = int(text) if text.isascii() and text.isdigit() else text
    return found or None


@click.command()
@click.option(
    "--url",
    help="The broker, amqp://user:password@host:port/vhost (guest at 127.0.0.1:5672); for the protocols of RocketMQ "
    "rocketmq://host:port, the name server, and rocketmq+grpc://host:port.",
)
@click.option(
    "--protocol",
    type=click.Choice([AMQP091, AMQP010, AMQP10, ROCKETMQ, ROCKETMQ_GRPC]),
    help="AMQP 0-9-1 (the default), 0-10 or 1.0, or RocketMQ's classic remoting or gRPC.",
)
@click.option(
    "--mode",
    type=click.Choice([PRESETTLED, FIRST, SECOND, COMPLETION, EXPLICIT]),
    help="With AMQP 1.0, who settles: presettled, first or second. Without it, first for confirms and "
    "acknowledgements, otherwise presettled. With AMQP 0-10, what confirms: completion (the default) or explicit "
    "acceptance.",
)
@click.option(
    "--scenario", type=click.Choice(list(SCENARIOS)), help="Start from this scenario; the options below change it."
)
@click.option("--size", type=click.IntRange(0, MAX_SIZE), help="Body size in bytes, at most 64 MiB.")
@click.option("--size-spread", "spread", type=_COUNT, help="Spread sizes by up to this many bytes around --size.")
@click.option("--ids/--no-ids", default=None, help="Give each message a unique message-id.")
@click.option("--correlation-ids/--no-correlation-ids", default=None, help="Give each message a correlation-id too.")
@click.option("--timestamps/--no-timestamps", default=None, help="Give each message a timestamp.")
@click.option("--headers/--no-headers", default=None, help="Give each message a different header table.")
@click.option(
    "--priorities",
    type=click.IntRange(0, 255),
    help="Give each message one of this many priorities; the queues have as many.",
)
@click.option("--count", type=_POSITIVE, help="Number of messages to publish in all.")
@click.option("--duration", type=_SECONDS, help="Seconds to publish (10 if there is no --count).")
@click.option("--producers", type=_COUNT, help="Publishing connections.")
@click.option("--channels", type=_POSITIVE, help="Channels on each publishing connection.")
@click.option("--consumers", type=_COUNT, help="Consuming connections.")
@click.option("--queues", type=_POSITIVE, help="Queues, divided among producers and consumers.")
@click.option("--random/--turns", default=None, help="Pick the queue of each message at random.")
@click.option("--keys", type=_COUNT, help="Publish to a topic exchange, under this many routing keys.")
@click.option("--bindings", type=_POSITIVE, help="With --keys: bindings of the exchange (1000, or as many as keys).")
@click.option("--fanout", type=_COUNT, help="Publish to a fanout exchange with this many queues.")
@click.option("--persistent/--transient", default=None, help="Delivery mode 2 or 1.")
@click.option("--confirms/--no-confirms", default=None, help="Publisher confirms.")
@click.option("--window", type=_POSITIVE, help="With confirms: unconfirmed messages a channel may have.")
@click.option(
    "--batch", type=click.IntRange(0, 1024), help="With RocketMQ: messages in one send, and in one answer to a pull."
)
@click.option("--name-server", help="With rocketmq-grpc: HOST:PORT of the name server (port 9876 of the same host).")
@click.option("--tx-size", type=_COUNT, help="Publishes in a transaction; each commit is awaited.")
@click.option(
    "--xa",
    type=click.Choice([TWO_PHASE, ONE_PHASE]),
    help="Publish in branches of distributed transactions (dtx), committed in this way.",
)
@click.option("--rate", type=_SECONDS, help="Messages/s to publish in all; also measures latency.")
@click.option("--latency/--no-latency", default=None, help="Measure the time from publish to delivery.")
@click.option("--auto-ack", is_flag=True, help="Consume without acknowledgements.")
@click.option("--ack-every", type=_POSITIVE, help="Send one acknowledgement for this many deliveries.")
@click.option(
    "--prefetch", type=click.IntRange(0, 65535), help="Unacknowledged deliveries a consumer may have; 0: no limit."
)
@click.option("--subscriptions", type=_POSITIVE, help="Consumers on each queue of each consuming connection.")
@click.option("--get", type=_COUNT, help="Consume by basic.get, with this many requests outstanding.")
@click.option(
    "--rpc", type=_COUNT, help="Consumers reply to each message; a producer has this many requests outstanding."
)
@click.option("--queue", help="Use this queue; with several queues, the prefix of their names.")
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    callback=_arguments,
    metavar="NAME=VALUE",
    help="Declare the queues with this argument, a number or a text. Can be repeated.",
)
@click.option(
    "--keep",
    is_flag=True,
    default=None,
    help="Keep the queues at the end. Without this option, even a queue that existed before is deleted.",
)
@click.option("--deadline", type=_SECONDS, help="Give up after this many seconds in all.")
@click.option(
    "--stall", type=_SECONDS, default=30.0, show_default=True, help="Give up after this many seconds without progress."
)
@click.option("--interval", type=_SECONDS, default=0.5, show_default=True, help="Seconds between samples.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", is_flag=True, help="No live display.")
def perf(
    url: str | None,
    scenario: str | None,
    auto_ack: bool,
    ack_every: int | None,
    deadline: float | None,
    stall: float,
    interval: float,
    as_json: bool,
    quiet: bool,
    **changes: Any,
) -> None:
    """Load a broker by AMQP 0-9-1, 0-10 or 1.0, or by a protocol of RocketMQ, and measure rates and latency.

    Ends with an error if the broker cannot be reached, closes the connection, stalls, or does not deliver what was
    published. Ctrl-C ends the run and prints the results so far.

    Messages that are all alike are the best case; the scenarios `varied` and `varied-confirms` show the opposite.

    \b
    Examples:
      escrowmq perf --scenario confirms --duration 10
      escrowmq perf --url amqp://guest:guest@127.0.0.1:5672/ --size 1000 --count 100000 --persistent --confirms
      escrowmq perf --scenario tx100 --producers 4 --json --quiet
      escrowmq perf --protocol amqp10 --scenario varied-confirms --mode second
      escrowmq perf --protocol amqp010 --scenario xa32
      escrowmq perf --protocol rocketmq --tx-size 1 --window 64 --queues 4
    """
    changes = {name: value for name, value in changes.items() if value is not None}
    if auto_ack and ack_every is not None:
        raise click.UsageError("--auto-ack and --ack-every exclude each other")
    if auto_ack:
        changes["ack_every"] = 0
    elif ack_every is not None:
        changes["ack_every"] = ack_every
    try:
        workload = workload_of(scenario, changes)
        scheme = SCHEMES.get(workload.protocol, "amqp")
        target = parse_url(url or f"{scheme}://127.0.0.1")
        if target.scheme != scheme:
            raise WrongUsage(f"--protocol {workload.protocol} needs a URL with the scheme {scheme}")
        if deadline is None:
            deadline = _BY_COUNT if workload.duration is None else workload.duration + _AFTER_DURATION
        console = Console(stderr=True)
        with LiveDisplay(console, enabled=not (quiet or as_json) and console.is_terminal) as display:
            outcome = run(target, workload, deadline, stall, display.show, interval)
    except WrongUsage as error:
        raise click.UsageError(str(error)) from None
    except PerfError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(document(outcome, scenario)))
    else:
        click.echo(summary(outcome))
    if outcome.interrupted:
        click.echo("interrupted: these are the results so far; nothing was verified", err=True)
        click.get_current_context().exit(_INTERRUPTED)
