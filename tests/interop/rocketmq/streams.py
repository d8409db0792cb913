"""The messages in the streams of a topic, as an AMQP client reads them."""

from __future__ import annotations

from escrowmq.client import connect
from tests.broker import BrokerProcess


class Streams:
    """Reads the bodies in the streams of one topic, each of them once."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int) -> None:
        self._broker = broker
        self._read = {f"{topic}-{number}": 0 for number in range(partitions)}

    def read(self) -> list[str]:
        """Return the bodies that were not read yet, as text."""
        found: list[str] = []
        with connect(self._broker.url) as link, link.channel() as channel:
            channel.basic_qos(prefetch_count=1000)
            for stream, begin in self._read.items():
                end = channel.queue_declare(stream, passive=True).method.message_count
                self._read[stream] = end
                if end == begin:
                    continue
                left = end - begin
                for method, _, body in channel.consume(stream, arguments={"x-stream-offset": begin}):
                    assert method is not None
                    assert body is not None
                    channel.basic_ack(method.delivery_tag)
                    found.append(body.decode())
                    left -= 1
                    if not left:
                        break
                channel.cancel()
        return found
