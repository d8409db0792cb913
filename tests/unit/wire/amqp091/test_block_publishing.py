"""A block arrives as if its messages had been published one by one."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escrowmq.core.budget import Budget
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.blocks import MOST_BYTES
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties
from escrowmq.wire.amqp091.table import FieldTable
from tests.harness.blocks import Sent, block_of
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import Server, fails_channel, pair, queue, server
from tests.unit.wire.amqp091.test_block_layouts import own
from tests.unit.wire.amqp091.test_keyed_publishing import bind, deliveries, frames, keyed_entries
from tests.unit.wire.amqp091.test_shape import lists

TOPIC = "amq.topic"


def ready(*keys: str, arguments: FieldTable | None = None) -> tuple[Server, SimClient]:
    """A server whose queue `q` is bound to amq.topic with these keys, and a client with a transaction on channel 2."""
    made, client = pair()
    queue(client, "q", arguments)
    bind(client, "q", *(keys or ("#",)))
    client.open_channel(2, mode="tx")
    return made, client


def publish(client: SimClient, block: bytes, exchange: str = TOPIC, key: str = "", frame_max: int = 0) -> None:
    method = spec.EscrowPublish(exchange, key)
    client.send_bytes(method_frame(2, method) + content_frames(2, NO_PROPERTIES, block, frame_max))


def commit(client: SimClient) -> None:
    client.call(2, spec.TxCommit(), spec.TxCommitOk)


SOME = [own(number) for number in range(50)]


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("keyed", [True, False])
def test_the_messages_of_a_block_arrive_unchanged_and_in_order(keyed: bool) -> None:
    _, client = ready()
    publish(client, block_of(*SOME, keyed=keyed, layouts=[list(range(50))]), *(() if keyed else ("", "q")))
    assert client.count(1, "q") == 0
    commit(client)
    assert deliveries(client) == [(key if keyed else "q", props, body) for key, props, body in SOME]


def test_a_block_is_one_run_per_set_of_queues() -> None:
    made, client = ready("k000*", "#")
    queue(client, "few")
    bind(client, "few", "k0007", "k0008")
    publish(client, block_of(*SOME, layouts=[list(range(50))]))
    commit(client)
    assert keyed_entries(made) == 50
    assert [key for key, _, _ in deliveries(client, "few")] == ["k0007", "k0008"]
    assert [key for key, _, _ in deliveries(client)] == [key for key, _, _ in SOME]


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_a_block_may_have_many_frames_and_arrive_in_pieces(frame_max: int) -> None:
    _, client = ready()
    client.piece = 1000
    publish(client, block_of(*SOME, layouts=[list(range(50))]), frame_max=frame_max)
    commit(client)
    assert len(deliveries(client)) == 50


def test_a_large_block_takes_several_turns() -> None:
    made, client = ready()
    many = [own(number) for number in range(4000)]
    made.broker.engine.requests.turn = 50
    publish(client, block_of(*many, layouts=[[row] for row in range(4000)]), frame_max=131_072)
    client.send(2, spec.TxCommit())
    for _ in range(1000):
        if client.inbox:
            break
        made.end_turn()
        made.run_disk()
        client.collect()
    client.expect(2, spec.TxCommitOk)
    assert client.count(1, "q") == 4000


def test_routes_to_many_queues_are_found_in_pieces_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made, client = ready("#", "#.last")  # because of the second pattern, each key has a route of its own
    vhost, requests = made.broker.directory.vhost("/"), made.broker.engine.requests
    for number in range(200):
        queue(client, f"q{number}")
        bind(client, f"q{number}", "#")
    route_each = vhost.route_each
    pieces: list[tuple[int, int]] = []  # units that are left before each, and the queues that its keys reach

    def counting(*args: Any) -> Any:
        found = route_each(*args)
        pieces.append((requests.left, sum(map(len, found.values()))))
        return found

    monkeypatch.setattr(vhost, "route_each", counting)
    publish(client, block_of(*[own(number) for number in range(300)], layouts=[list(range(300))]))
    commit(client)
    assert sum(reached for _, reached in pieces) == 300 * 201
    assert max(reached for _, reached in pieces) <= 1000
    assert min(left for left, _ in pieces) > 0
    assert client.count(1, "q7") == 300


def test_routing_keys_of_many_words_cost_more_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made, client = ready("#.a.#.b")
    vhost, sizes = made.broker.directory.vhost("/"), [0]
    route_each, renew = vhost.route_each, Budget.renew

    def counting(exchange: str, names: Any) -> Any:
        sizes[-1] += len(names)
        return route_each(exchange, names)

    def renewing(budget: Budget) -> None:
        sizes.append(0)
        renew(budget)

    monkeypatch.setattr(vhost, "route_each", counting)
    monkeypatch.setattr(Budget, "renew", renewing)
    publish(client, block_of(*[own(number, key="a." * 100) for number in range(400)], layouts=[list(range(400))]))
    commit(client)
    assert sum(sizes) == 400
    assert max(sizes) < 100


def one_by_one(sent: list[Sent], exchange: str, key: str, arguments: FieldTable | None) -> list[object]:
    _, client = ready(arguments=arguments)
    client.send_bytes(b"".join(frames((key or own_key, *rest), exchange, 2) for own_key, *rest in sent))  # type: ignore[arg-type]
    return outcome(client)


def together(sent: list[Sent], exchange: str, key: str, arguments: FieldTable | None) -> list[object]:
    _, client = ready(arguments=arguments)
    publish(client, block_of(*sent, keyed=not key), exchange, key)
    return outcome(client)


def outcome(client: SimClient) -> list[object]:
    """What the client learns: the error that closed its channel or connection, or the messages that arrived."""
    client.send(2, spec.TxCommit())
    for message in client.inbox:
        if isinstance(message.method, spec.ChannelClose | spec.ConnectionClose):
            return [message.method.reply_code, message.method.reply_text]
    client.inbox.clear()
    return [*deliveries(client)]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "a.b", "ä", ""]), lists, st.binary(min_size=1, max_size=5)), min_size=1),
    st.sampled_from([(TOPIC, ""), ("amq.headers", ""), ("", "q"), ("nowhere", ""), (TOPIC, "a")]),
    st.sampled_from([None, {"x-max-length-bytes": 1000}, {"x-max-length": 3, "x-overflow": "reject-publish"}]),
)
def test_a_block_has_the_effect_of_single_publishes(
    sent: list[Sent], target: tuple[str, str], arguments: FieldTable | None
) -> None:
    assert together(sent, *target, arguments) == one_by_one(sent, *target, arguments)


@pytest.mark.rule("SEC-3")
def test_the_permission_is_checked_for_every_key() -> None:
    made = server(users=("guest", "other"))
    made.broker.access.set_topic_permission("other", "/", TOPIC, "^allowed", "")
    client = SimClient(made, user="other")
    client.open_channel(1)
    queue(client)
    client.open_channel(2, mode="tx")
    publish(client, block_of(*[own(number, key="allowed") for number in range(9)], own(9, key="denied_")))
    fails_channel(client, 2, codes.ACCESS_REFUSED, "denied_0009")


@pytest.mark.parametrize("keyed", [True, False])
def test_a_malformed_block_closes_the_channel_and_publishes_nothing(keyed: bool) -> None:
    _, client = ready()
    block = block_of(*SOME, keyed=keyed, layouts=[list(range(50))])
    publish(client, block[:-1] + b"x")
    fails_channel(client, 2, codes.PRECONDITION_FAILED, "malformed block: the body frame of a content has no end octet")
    assert client.count(1, "q") == 0


@given(st.data())
def test_a_damaged_block_is_refused_or_delivered_as_frames(data: st.DataObject) -> None:
    _, client = ready()
    block = bytearray(block_of(*SOME[:12], layouts=[list(range(12))]))
    for _ in range(data.draw(st.integers(1, 4))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    publish(client, bytes(block))
    found = outcome(client)  # reads every frame that the broker sends
    assert len(found) == 12 or found[0] in {codes.PRECONDITION_FAILED, codes.SYNTAX_ERROR}, found


def test_a_block_outside_a_transaction_is_refused() -> None:
    _, client = ready()
    client.open_channel(3)
    client.send(3, spec.EscrowPublish(TOPIC))
    fails_channel(client, 3, codes.COMMAND_INVALID, "possible only in a transaction")


def test_a_block_beyond_the_limit_is_refused() -> None:
    _, client = ready()
    publish(client, bytes(MOST_BYTES + 1), frame_max=131_072)
    fails_channel(client, 2, codes.PRECONDITION_FAILED, f"at most {MOST_BYTES} are possible")


def test_a_key_that_is_not_utf8_is_refused() -> None:
    _, client = ready()
    block = block_of(("kkk", NO_PROPERTIES, b"b")).replace(b"kkk", b"k\xffk")
    publish(client, block)
    fails_channel(client, 2, codes.PRECONDITION_FAILED, "a routing key is not UTF-8")


@pytest.mark.rule("TX-4")
def test_a_rolled_back_block_leaves_nothing() -> None:
    _, client = ready()
    publish(client, block_of(*SOME))
    client.call(2, spec.TxRollback(), spec.TxRollbackOk)
    assert client.count(1, "q") == 0


def test_large_header_tables_are_counted_in_columns() -> None:
    _, client = ready()
    sent = [("k", Properties(headers={f"n{i}": "v" for i in range(100)}).encode(), b"%d" % n) for n in range(9)]
    block = block_of(*sent)
    assert array("I", block[16 + 4 * 10 :][:4])[0] == 9
    publish(client, block)
    commit(client)
    assert len(deliveries(client)) == 9
