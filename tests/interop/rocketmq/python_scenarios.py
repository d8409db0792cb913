"""Scenarios of the unmodified Python client of RocketMQ 5: `python_scenarios.py PORT SCENARIO [KEY SECRET]`.

Each scenario is a function, whose result is printed as JSON. It runs in a process of its own, because the client starts
threads that outlive it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

SECONDS = 60.0


class Checker(TransactionChecker):  # type: ignore[misc]
    """Answers each check as the message's body says, and counts the checks."""

    def __init__(self) -> None:
        self.checks: dict[str, int] = {}

    def check(self, message: Message) -> TransactionResolution:
        text = message.body.decode()
        self.checks[text] = self.checks.get(text, 0) + 1
        if text.startswith("commit") or (text.startswith("later") and self.checks[text] > 1):
            return TransactionResolution.COMMIT
        return TransactionResolution.ROLLBACK if text.startswith("rollback") else TransactionResolution.UNKNOWN


def message(topic: str, body: str, **fields: Any) -> Message:
    made = Message()
    made.topic, made.body, made.tag, made.keys = topic, body.encode(), fields.pop("tag", "a"), "key-" + body
    for name, value in fields.items():
        setattr(made, name, value)
    made.add_property("shop", "north")
    return made


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        threading.Event().wait(0.05)


def consume(config: ClientConfiguration, topic: str, group: str, count: int) -> list[Any]:
    """Receive and acknowledge messages until `count` of them came."""
    consumer = SimpleConsumer(config, group, {topic: FilterExpression("*")}, 5)
    consumer.startup()
    found: list[Any] = []
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        for each in consumer.receive(16, 15) or []:
            found.append(each)
            consumer.ack(each)
    consumer.shutdown()
    return found


def sends(config: ClientConfiguration) -> Any:
    """Normal messages arrive with everything that was sent."""
    producer = Producer(config, ("normal",))
    producer.startup()
    sent = {producer.send(message("normal", f"body-{i}")).message_id for i in range(20)}
    producer.shutdown()
    found = consume(config, "normal", "readers", 20)
    assert {each.message_id for each in found} == sent
    assert {(each.tag, tuple(each.keys), each.properties["shop"]) for each in found} == {
        ("a", (f"key-body-{i}",), "north") for i in range(20)
    }
    return len(found)


def reads(config: ClientConfiguration) -> Any:
    """Return the messages in the topic that another client has filled."""
    found = consume(config, "normal", "readers", 4)
    return sorted([each.body.decode(), each.message_id, each.tag, each.properties.get("shop")] for each in found)


def order(config: ClientConfiguration) -> Any:
    """Messages of one group are in order."""
    producer = Producer(config, ("fifo",))
    producer.startup()
    for i in range(10):
        producer.send(message("fifo", str(i), message_group="g"))
    producer.shutdown()
    return [each.body.decode() for each in consume(config, "fifo", "in-order", 10)]


def delay(config: ClientConfiguration) -> Any:
    """A delayed message arrives at its time."""
    producer = Producer(config, ("delay",))
    producer.startup()
    begin = time.time()
    producer.send(message("delay", "later", delivery_timestamp=int(begin) + 3))
    producer.shutdown()
    consume(config, "delay", "patient", 1)
    return time.time() >= int(begin) + 3


def push(config: ClientConfiguration) -> Any:
    """A push consumer gets what it could not handle once more."""
    seen: dict[str, int] = {}

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Message) -> ConsumeResult:
            text = message.body.decode()
            seen[text] = seen.get(text, 0) + 1
            return ConsumeResult.SUCCESS if seen[text] > 1 or text != "0" else ConsumeResult.FAILURE

    producer = Producer(config, ("pushed",))
    producer.startup()
    for i in range(5):
        producer.send(message("pushed", str(i)))
    producer.shutdown()
    consumer = PushConsumer(config, "pushers", Listener(), {"pushed": FilterExpression()})
    consumer.startup()
    until(lambda: len(seen) == 5 and seen.get("0") == 2)
    consumer.shutdown()
    return seen


def transactions(config: ClientConfiguration) -> Any:
    """Commit, rollback, and every answer of a checker."""
    checker = Checker()
    producer = Producer(config, ("tx",), checker=checker)
    producer.startup()
    for text in ("at once", "not at all"):
        transaction = producer.begin_transaction()
        producer.send(message("tx", text), transaction)
        if text == "at once":
            transaction.commit()
        else:
            transaction.rollback()
    for text in ("commit", "rollback", "later", "unknown"):
        producer.send(message("tx", text), producer.begin_transaction())
    until(lambda: len(checker.checks) == 4 and checker.checks["later"] > 1)
    found = sorted(each.body.decode() for each in consume(config, "tx", "g", 3))
    producer.shutdown()
    return found, checker.checks


def before_a_kill(config: ClientConfiguration) -> Any:
    """Leave committed, rolled back and undecided transactions behind."""
    producer = Producer(config, ("survivors",), checker=Checker())
    producer.startup()
    for i in range(10):
        for end in ("commit", "rollback", None):
            transaction = producer.begin_transaction()
            producer.send(message("survivors", f"{end or 'commit-by-check'}-{i}"), transaction)
            if end is not None:
                getattr(transaction, end)()
    sys.stdout.write("[]\n")
    sys.stdout.flush()
    threading.Event().wait()  # the test kills this process, so that nothing ends in order


def after_a_kill(config: ClientConfiguration) -> Any:
    """Another producer of the topic is asked about the undecided ones."""
    checker = Checker()
    producer = Producer(config, ("survivors",), checker=checker)
    producer.startup()
    found = sorted(each.body.decode() for each in consume(config, "survivors", "survivors", 20))
    producer.shutdown()
    return found, checker.checks


def nothing_more(config: ClientConfiguration) -> Any:
    """Return what is left for the group."""
    consumer = SimpleConsumer(config, "survivors", {"survivors": FilterExpression("*")}, 5)
    consumer.startup()
    found = [each.body.decode() for each in consumer.receive(16, 15) or []]
    consumer.shutdown()
    return found


def is_refused(config: ClientConfiguration) -> Any:
    """Return whether the broker refuses the client."""
    producer = Producer(config, ("normal",))
    try:
        producer.startup()
        producer.send(message("normal", "refused"))
    except Exception:  # noqa: BLE001 - the client raises errors of several types
        return True
    return False


SCENARIOS = (is_refused, sends, reads, order, delay, push, transactions, before_a_kill, after_a_kill, nothing_more)


def main() -> None:
    config = ClientConfiguration(f"127.0.0.1:{sys.argv[1]}", Credentials(*sys.argv[3:]))
    by_name = {each.__name__: each for each in SCENARIOS}
    sys.stdout.write(json.dumps(by_name[sys.argv[2]](config)) + "\n")


if __name__ == "__main__":
    main()
