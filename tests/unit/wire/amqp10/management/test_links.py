"""The pair of links to the management node: attaching, credit, windows, and the end."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    SETTLED_MODE,
    UNSETTLED_MODE,
    Attach,
    Detach,
    Flow,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.states import Accepted, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import DECODE_ERROR, NOT_ALLOWED, PRECONDITION_FAILED, TRANSFER_LIMIT_EXCEEDED
from escrowmq.wire.amqp10.management.links import CREDIT
from tests.unit.wire.amqp10.clients import Client, server
from tests.unit.wire.amqp10.management.manager import ADDRESS, PAIR, REQUESTS, RESPONSES, Manager, request_of

GET = request_of("GET", "/queues/none")


def alone() -> Manager:
    """Return a manager whose links are attached by the test."""
    manager = object.__new__(Manager)
    manager.server = server()
    manager.client = Client(manager.server)
    manager.number = 0
    return manager


class TestAttaching:
    @pytest.mark.parametrize("first", ["requests", "responses"])
    def test_the_client_gets_credit_when_both_links_are_attached(self, first: str) -> None:
        manager = alone()
        getattr(manager, first)()
        assert manager.client.idle()
        (manager.responses if first == "requests" else manager.requests)()
        flow = manager.client.expect(Flow)
        assert (flow.handle, flow.link_credit) == (REQUESTS, CREDIT)

    def test_the_answers_say_that_the_links_are_paired(self) -> None:
        manager = alone()
        requests, responses = manager.requests(), manager.responses()
        assert (requests.target, requests.properties) == (Target(ADDRESS), PAIR)
        assert (responses.source, responses.properties) == (Source(ADDRESS), PAIR)

    def test_responses_are_settled_whatever_the_client_asks_for(self) -> None:
        client = Client(server())
        client.send(0, Attach("pair", 1, RECEIVER, UNSETTLED_MODE, source=Source(ADDRESS), target=Target()))
        assert client.expect(Attach).snd_settle_mode == SETTLED_MODE

    def test_links_of_other_names_are_no_pair(self) -> None:
        manager = alone()
        manager.requests(name="a")
        manager.responses(name="b", credit=1)
        assert manager.client.idle()
        manager.client.flow(REQUESTS, echo=True)
        assert manager.client.expect(Flow).link_credit == 0

    def test_links_of_another_session_are_no_pair(self) -> None:
        manager = alone()
        manager.requests()
        manager.client.begin(1)
        attach = Attach("pair", 0, RECEIVER, SETTLED_MODE, source=Source(ADDRESS), target=Target(ADDRESS))
        manager.client.send(1, attach)
        manager.client.expect(Attach)
        assert manager.client.idle()

    def test_a_dynamic_terminus_is_not_the_management_node(self) -> None:
        client = Client(server())
        target = Target(ADDRESS, dynamic=True)
        client.refused(Attach("l", 0, SENDER, target=target, initial_delivery_count=0), PRECONDITION_FAILED)


class TestRequests:
    def test_a_request_that_is_not_settled_is_accepted(self) -> None:
        manager = Manager()
        number = manager.send(GET, settled=False)
        seen: list[Any] = [message.performative for message in manager.client.inbox]
        assert [type(each) for each in seen].count(Transfer) == 1
        manager.client.inbox = type(manager.client.inbox)(
            message for message in manager.client.inbox if not isinstance(message.performative, Transfer)
        )
        answer = manager.client.outcome(number)
        assert (answer.state, answer.settled) == (Accepted(), True)

    def test_a_request_may_come_in_several_frames(self) -> None:
        manager = Manager()
        manager.client.send(0, Transfer(REQUESTS, 1, b"t", 0, True, more=True), payload=GET[:9])
        assert manager.client.idle()
        manager.client.send(0, Transfer(REQUESTS, more=False), payload=GET[9:])
        assert manager.receive()[1].code == 404

    def test_a_request_in_several_frames_holds_memory_only_until_it_is_whole(self) -> None:
        manager = Manager()
        big = request_of("GET", "/queues/" + "n" * 100_000)
        manager.client.send(0, Transfer(REQUESTS, 1, b"t", 0, True, more=True), payload=big[:90_000])
        held = manager.broker.holdings.of_user("guest")
        assert held > 0
        manager.client.send(0, Transfer(REQUESTS, more=False), payload=big[90_000:])
        assert manager.receive()[1].code == 404
        assert manager.broker.holdings.of_user("guest") < held

    def test_an_aborted_request_is_forgotten(self) -> None:
        manager = Manager()
        manager.client.send(0, Transfer(REQUESTS, 1, b"t", 0, True, more=True), payload=GET[:9])
        manager.client.send(0, Transfer(REQUESTS, aborted=True))
        assert manager.code("GET", "/queues/none") == 404

    def test_a_request_in_a_transaction_costs_the_link(self) -> None:
        manager = Manager()
        manager.send(GET, settled=False, state=TransactionalState(b"x"))
        detach = manager.client.expect(Detach)
        assert detach.error is not None

    def test_requests_beyond_the_credit_cost_the_link(self) -> None:
        manager = Manager(credit=0)
        manager.client.expect(Flow)
        for _ in range(CREDIT + 1):
            manager.send(GET)
        manager.client.detached(REQUESTS, TRANSFER_LIMIT_EXCEEDED)

    def test_credit_is_granted_again(self) -> None:
        manager = Manager()
        manager.number = 0
        for _ in range(3 * CREDIT):
            manager.send(GET)
            while not isinstance(manager.client.inbox[0].performative, Transfer):
                manager.client.expect(Flow)
            assert manager.receive()[1].code == 404

    def test_a_request_without_a_link_for_its_response_costs_the_link(self) -> None:
        manager = Manager()
        manager.client.send(0, Detach(handle=RESPONSES, closed=True))
        manager.client.expect(Detach)
        manager.send(GET)
        manager.client.detached(REQUESTS, PRECONDITION_FAILED)

    def test_a_malformed_request_costs_the_link(self) -> None:
        manager = Manager()
        manager.send(b"\x00\x53")
        manager.client.detached(REQUESTS, DECODE_ERROR)

    def test_a_transfer_on_the_link_for_responses_costs_it(self) -> None:
        manager = Manager()
        manager.client.send(0, Transfer(RESPONSES, 1, b"t", 0, True), payload=GET)
        manager.client.detached(RESPONSES, NOT_ALLOWED)


class TestResponses:
    def test_responses_wait_for_credit(self) -> None:
        manager = Manager(credit=0)
        manager.client.expect(Flow)
        for _ in range(3):
            manager.send(GET)
        assert manager.client.idle()
        manager.client.flow(RESPONSES, 2)
        assert [manager.receive()[1].code for _ in range(2)] == [404, 404]
        assert manager.client.idle()
        manager.client.flow(RESPONSES, 5, delivery_count=2)
        assert manager.receive()[1].code == 404

    def test_waiting_responses_count_against_the_credit_for_requests(self) -> None:
        manager = Manager(credit=0)
        manager.client.expect(Flow)
        for _ in range(CREDIT):
            manager.send(GET)
        assert manager.client.idle()
        manager.client.flow(RESPONSES, CREDIT)
        for _ in range(CREDIT):
            manager.receive()
        assert manager.client.expect(Flow).link_credit == CREDIT

    def test_responses_wait_for_the_incoming_window(self) -> None:
        manager = Manager()
        manager.client.flow(None, incoming_window=0)
        manager.send(GET)
        assert manager.client.idle()
        manager.client.flow(None, incoming_window=1)
        assert manager.receive()[1].code == 404

    def test_a_large_response_goes_in_several_frames(self) -> None:
        made = server()
        manager = alone()
        manager.server, manager.client = made, Client(made, max_frame_size=512)
        manager.requests()
        manager.responses(credit=1)
        manager.client.expect(Flow)
        arguments = {f"x-note-{i}": "n" * 100 for i in range(20)}
        answer = manager.ask("PUT", "/queues/q", {"arguments": arguments})
        assert answer.body["arguments"] == arguments

    def test_a_detached_link_keeps_nothing(self) -> None:
        manager = Manager(credit=0)
        manager.client.expect(Flow)
        manager.send(GET)
        manager.client.send(0, Detach(handle=RESPONSES, closed=True))
        manager.client.expect(Detach)
        manager.responses()
        assert manager.client.idle()
        manager.client.flow(RESPONSES, 10)
        assert manager.client.idle() or isinstance(manager.client.inbox[0].performative, Flow)

    def test_the_state_of_the_link_is_told(self) -> None:
        manager = Manager(credit=3)
        manager.client.flow(RESPONSES, 3, echo=True)
        assert manager.client.expect(Flow).link_credit == 3
        manager.client.flow(RESPONSES, 3, drain=True)
        flow = manager.client.expect(Flow)
        assert (flow.delivery_count, flow.link_credit, flow.drain) == (3, 0, True)

    def test_a_response_about_a_durable_object_waits_for_the_sync(self) -> None:
        manager = Manager()
        self.unsynced(manager, request_of("PUT", "/queues/q", {}))
        assert manager.client.idle()
        manager.server.run_disk()
        manager.client.collect()
        assert manager.receive()[1].code == 201

    @staticmethod
    def unsynced(manager: Manager, message: bytes) -> None:
        transfer = encode_performative(Transfer(REQUESTS, 1, b"t", 0, True))
        manager.client.send_bytes(frame(0, transfer, message), disk=False)


def test_the_links_are_listed() -> None:
    manager = Manager(credit=7)
    found = manager.client.port.endpoint.describe()["links"]
    assert isinstance(found, list)
    assert [(each["address"], each["credit"], each["role"]) for each in found] == [
        (ADDRESS, CREDIT, "receiver"),
        (ADDRESS, 7, "sender"),
    ]


def test_blocked_publishers_may_manage_and_links_are_never_forbidden() -> None:
    manager = Manager()
    manager.client.port.endpoint.block("memory")
    list(manager.client.port.endpoint.permissions_changed())
    assert manager.code("DELETE", "/queues/none") == 200
