"""`publish_many` of EscrowMQ's own client, with a different routing key in each message.

`python -m bench.publish_many URL COUNT` takes one measurement and prints the rate.
"""

from __future__ import annotations

import subprocess
import sys
import time

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement
from bench.scenario import Figure, Scenario, Settings
from escrowmq import client
from escrowmq.perf.messages import Variety, messages

_EXCHANGE = "bench-topic"
_QUEUE = "bench-topic"
_BINDINGS = 1000
_KEYS = 10_000
_LIMIT_SECONDS = 300.0


class PublishMany(Scenario):
    """Confirmed transient messages of 60 to 140 bytes to a topic exchange; encoding them is part of the measurement."""

    peers = ()

    def __init__(self) -> None:
        title = "publish_many of our client, confirmed, own routing keys"
        super().__init__("publish-many", (Figure("publish-many", title, "messages/s", at_least=150_000),))

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        return self._publish(broker, max(int(500_000 * settings.scale), 20_000))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        self._publish(broker, 20_000)

    def _publish(self, broker: Broker, count: int) -> Measurement:
        command = [sys.executable, "-m", "bench.publish_many", broker.url, str(count)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=True)
        except subprocess.SubprocessError as error:
            raise MeasureError(f"publish_many: {error}") from error
        return Measurement({"publish-many": float(done.stdout)})


def rate(url: str, count: int) -> float:
    """Publish and wait for the confirms; return the rate in messages/s."""
    bodies = [message.body for message in messages(Variety(spread=40), 100, count)]
    keys = [f"region.{number % _BINDINGS}.{number % _KEYS // _BINDINGS}" for number in range(count)]
    with client.connect(url) as connection:
        channel = connection.channel()
        channel.exchange_declare(_EXCHANGE, "topic")
        channel.queue_declare(_QUEUE)
        for number in range(_BINDINGS):
            channel.queue_bind(_QUEUE, _EXCHANGE, f"region.{number}.*")
        channel.confirm_delivery()
        begin = time.perf_counter()
        channel.publish_many(_EXCHANGE, keys, bodies)
        seconds = time.perf_counter() - begin
        channel.queue_purge(_QUEUE)
    return count / seconds


if __name__ == "__main__":
    print(rate(sys.argv[1], int(sys.argv[2])))
