"""Backlogs: memory, stopping and starting with them, and the dead-lettering of messages that expire."""

from __future__ import annotations

import time
from struct import unpack_from

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement, details, perf
from bench.scenario import BACKLOG, MB, Figure, Scenario, Settings, fill, restart, steadiness
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.url import parse_url


class Backlog(Scenario):
    """A backlog of 1,000,000 messages of 1 kB: memory, and restart times after a clean stop and after kill -9."""

    fresh = True

    def __init__(self) -> None:
        super().__init__(
            "backlog",
            (
                Figure("backlog.memory", "memory, backlog of 1,000,000 persistent of 1 kB", "MB", None, 1.0, below=250),
                Figure("backlog.memory-peak", "— peak while they are published", "MB"),
                Figure("backlog.publish", "— publish rate, confirmed", "messages/s"),
                Figure("backlog.restart", "restart with that backlog until ready", "s", below=5),
                Figure("backlog.restart-killed", "— after kill -9", "s", below=5),
                Figure("backlog.drain", "— then consumed, acked", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(1_000_000 * settings.scale)
        result = fill(broker, count, size=1000)
        broker.settle()
        figures = {
            "backlog.memory": broker.resident_bytes() / MB,
            "backlog.memory-peak": broker.peak_resident_bytes() / MB,
            "backlog.publish": result["rates"]["publish"],
            "backlog.restart": restart(broker, count),
            "backlog.restart-killed": restart(broker, count, kill=True),
        }
        figures["backlog.drain"] = perf(broker, "--producers", "0", "--queue", BACKLOG)["rates"]["deliver"]
        return Measurement(figures, details(result))


class History(Scenario):
    """Restart times with 1,000 messages after 10,000,000 others were consumed, and with the 1,000 alone."""

    fresh = True
    peers = ()
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "history",
            (
                Figure("history.restart", "restart after 10,000,000 messages, 1,000 left", "s", below=5),
                Figure("history.restart-killed", "— after kill -9", "s", below=5),
                Figure("history.restart-without", "— with the 1,000 alone", "s"),
                Figure("history.through", "— delivery rate of the 10,000,000", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        fill(broker, 1000)
        without = restart(broker, 1000)
        # They use another queue, so that the thousand stay at the oldest end of the journal.
        count = int(10_000_000 * settings.scale)
        result = perf(broker, "--scenario", "confirms", "--count", str(count), "--deadline", "1500")
        broker.settle()
        figures = {
            "history.restart": restart(broker, 1000),
            "history.restart-killed": restart(broker, 1000, kill=True),
            "history.restart-without": without,
            "history.through": result["rates"]["deliver"],
        }
        return Measurement(figures, details(result))


class LongBacklog(Scenario):
    """A backlog of 10,000,000 messages of 100 B: memory, and whether the publish rate stays constant."""

    fresh = True
    peers = ()
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "long-backlog",
            (
                Figure("long-backlog.memory", "memory, backlog of 10,000,000 persistent of 100 B", "MB", below=800),
                Figure("long-backlog.memory-peak", "— peak while they are published", "MB", below=800),
                Figure("long-backlog.publish", "— publish rate, confirmed", "messages/s"),
                Figure("long-backlog.steady", "— rate of the last tenth, divided by the first's", "", at_least=0.8),
                Figure("long-backlog.restart", "— restart with that backlog until ready", "s"),
                Figure("long-backlog.drain", "— then consumed, acked", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(10_000_000 * settings.scale)
        result = fill(broker, count)
        broker.settle()
        figures = {
            "long-backlog.memory": broker.resident_bytes() / MB,
            "long-backlog.memory-peak": broker.peak_resident_bytes() / MB,
            "long-backlog.publish": result["rates"]["publish"],
            "long-backlog.steady": steadiness(result["series"]),
            "long-backlog.restart": restart(broker, count),
        }
        figures["long-backlog.drain"] = perf(broker, "--producers", "0", "--queue", BACKLOG)["rates"]["deliver"]
        return Measurement(figures, {**details(result), "series": result["series"]})


class PriorityBacklog(Scenario):
    """The time to stop and to start with 1,000,000 varied messages in a queue with ten priorities."""

    fresh = True
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "priority-backlog",
            (
                Figure("priority-backlog.stop", "stop, 1,000,000 varied messages of 10 priorities", "s", below=3),
                Figure("priority-backlog.start", "— start until ready", "s", below=3),
                Figure("priority-backlog.publish", "— publish rate, confirmed", "messages/s"),
                Figure("priority-backlog.drain", "— then consumed, acked", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(1_000_000 * settings.scale)
        result = fill(broker, count, "--priorities", "10", load="varied-backlog")
        broker.settle()
        begin = time.monotonic()
        broker.stop()
        stopped_in = time.monotonic() - begin
        broker.start()
        drained = perf(broker, "--producers", "0", "--queue", BACKLOG, "--argument", "x-max-priority=10")
        if drained["consumed"] != count:
            raise MeasureError(
                f"{broker.name} delivered {drained['consumed']} messages after the restart instead of {count}"
            )
        figures = {
            "priority-backlog.stop": stopped_in,
            "priority-backlog.start": broker.started_in,
            "priority-backlog.publish": result["rates"]["confirm"],
            "priority-backlog.drain": drained["rates"]["deliver"],
        }
        return Measurement(figures, details(result))


class DeadLetters(Scenario):
    """CPU time per message when 500,000 varied messages expire at once and are dead-lettered."""

    fresh = True
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "dead-letters",
            (
                Figure("dead-letters.cpu", "TTL, 500,000 varied dead-lettered at once, CPU per message", "µs", below=8),
                Figure("dead-letters.rate", "— rate", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(500_000 * settings.scale)
        ttl = 20.0 + 80.0 * settings.scale
        target = "bench-dead-letters"
        options = (f"x-message-ttl={int(ttl * 1000)}", "x-dead-letter-exchange=", f"x-dead-letter-routing-key={target}")
        with Connection(parse_url(broker.url), "bench", timeout=60.0) as connection:
            connection.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
            connection.call(1, frames.queue_declare(1, target, durable=True), frames.QUEUE_DECLARE_OK)
            arguments = [part for option in options for part in ("--argument", option)]
            fill(broker, count, *arguments, load="varied-backlog")
            published_at = time.monotonic()
            # All messages become due while the broker is frozen.
            broker.freeze()
            time.sleep(max(published_at + ttl + 0.5 - time.monotonic(), 0))
            begin, cpu = time.monotonic(), broker.cpu_seconds()
            broker.thaw()
            _await_depth(connection, target, count)
            seconds = time.monotonic() - begin
            broker.settle()
            spent = broker.cpu_seconds() - cpu
        return Measurement({"dead-letters.cpu": spent / count * 1e6, "dead-letters.rate": count / seconds})


def _await_depth(connection: Connection, queue: str, count: int) -> None:
    """Wait until a queue has `count` messages. Raises MeasureError after ten minutes."""
    request = frames.queue_declare(1, queue, durable=True, passive=True)
    give_up = time.monotonic() + 600
    while time.monotonic() < give_up:
        answer = connection.call(1, request, frames.QUEUE_DECLARE_OK)
        if unpack_from(">I", answer, 1 + answer[0])[0] == count:
            return
        time.sleep(0.05)
    raise MeasureError(f"{queue} does not hold {count} messages after ten minutes")
