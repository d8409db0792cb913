"""The coordinator of transactions: its link, its commands, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    Detach,
    End,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sections import VALUE, Header, encode_header
from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    Declared,
    Rejected,
    TransactionalState,
)
from escrowmq.wire.amqp10.codec.termini import Coordinator, Declare, Discharge
from escrowmq.wire.amqp10.coordinator import CAPABILITIES, CREDIT, CoordinatorLink
from escrowmq.wire.amqp10.errors import (
    DECODE_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TRANSFER_LIMIT_EXCEEDED,
    UNKNOWN_TRANSACTION,
)
from tests.unit.wire.amqp10.controller import CONTROL, Controller


@pytest.fixture
def site() -> Controller:
    return Controller()


class TestCoordinatorLink:
    def test_the_coordinator_says_what_it_can_do(self, site: Controller) -> None:
        answer = site.attach(8)
        assert isinstance(answer.target, Coordinator)
        assert answer.target.capabilities == CAPABILITIES

    def test_several_transactions_are_open_at_once(self, site: Controller) -> None:
        assert len({site.declare() for _ in range(10)}) == 10

    @pytest.mark.rule("SET-7")
    def test_a_declaration_is_answered_while_the_discharge_before_it_waits_for_the_disk(self, site: Controller) -> None:
        ident = site.declare()
        site.client.post(50, state=TransactionalState(ident), durable=True)
        assert isinstance(site.client.outcome(50).state, TransactionalState)
        commands = b"".join(
            frame(
                0,
                encode_performative(Transfer(CONTROL, number, b"%d" % number, 0, False)),
                b"\x00\x53" + bytes((VALUE,)) + encode_composite(command),
            )
            for number, command in ((51, Discharge(ident, False)), (52, Declare()))
        )
        site.client.send_bytes(commands, disk=False)
        assert isinstance(site.client.outcome(52).state, Declared)
        assert site.client.idle()
        site.client.server.run_disk()
        site.client.collect()
        assert site.client.outcome(51).state == Accepted()

    def test_symbolic_descriptors_and_further_sections_are_accepted(self, site: Controller) -> None:
        site.number += 1
        value = b"\x00\xa3\x11amqp:declare:list\x45"
        payload = encode_header(Header(durable=True)) + b"\x00\x53\x73\x45" + b"\x00\x53\x77" + value
        site.client.send(0, Transfer(CONTROL, site.number, b"t", 0, False), payload=payload)
        assert isinstance(site.client.outcome(site.number).state, Declared)

    @pytest.mark.parametrize(
        ("value", "condition"),
        [
            (Declare(b"global"), NOT_IMPLEMENTED),
            (Discharge(b"unknown", False), UNKNOWN_TRANSACTION),
            (Discharge(b"unknown", True), UNKNOWN_TRANSACTION),
            (Accepted(), INVALID_FIELD),
            (b"\x40", INVALID_FIELD),
        ],
    )
    @pytest.mark.parametrize("rejects", [True, False])
    def test_a_bad_command_is_rejected_if_the_source_lists_the_outcome(
        self, value: Any, condition: str, rejects: bool
    ) -> None:
        site = Controller(rejects=rejects)
        number = site.command(value)
        if rejects:
            state = site.client.outcome(number).state
            assert isinstance(state, Rejected)
            assert state.error is not None
            assert state.error.condition == condition
            site.declare()
        else:
            site.client.detached(CONTROL, condition)

    def test_a_malformed_command_costs_the_link(self, site: Controller) -> None:
        site.command(b"\x00")
        site.client.detached(CONTROL, DECODE_ERROR)

    def test_a_settled_command_costs_the_link(self, site: Controller) -> None:
        site.command(Declare(), settled=True)
        site.client.detached(CONTROL, ILLEGAL_STATE)

    def test_a_command_in_a_transaction_costs_the_link(self, site: Controller) -> None:
        site.command(Declare(), state=TransactionalState(site.declare()))
        site.client.detached(CONTROL, NOT_ALLOWED)

    def test_commands_beyond_the_credit_cost_the_link(self, site: Controller) -> None:
        link = site.client.port.endpoint.sessions[0].links[CONTROL].end
        assert isinstance(link, CoordinatorLink)
        for _ in range(3):
            site.declare()
        assert link.describe()["credit"] == CREDIT - 3
        link._limit = link._count
        site.command(Declare())
        site.client.detached(CONTROL, TRANSFER_LIMIT_EXCEEDED)

    @pytest.mark.rule("FAIR-3")
    def test_too_many_transactions_are_refused(self) -> None:
        site = Controller(transactions=2)
        first = site.declare()
        site.declare()
        refused = site.outcome(Declare())
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == LIMIT_EXCEEDED
        site.commit(first)
        site.declare()

    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("way", ["close", "detach", "end", "lost"])
    def test_losing_the_control_link_rolls_back(self, site: Controller, way: str) -> None:
        ident = site.declare()
        site.post(ident, 0, durable=True)
        if way == "close":
            site.client.send(0, Detach(handle=CONTROL, closed=True))
        elif way == "detach":
            site.client.send(0, Detach(handle=CONTROL))
        elif way == "end":
            site.client.send(0, End())
        else:
            site.server.lose(site.client.port)
            site.server.end_turn()
        assert site.contents() == []
        assert not [one for one in site.server.broker.engine.holders if getattr(one, "publications", None)]
        if way in {"close", "detach"}:
            site.client.expect(Detach)
            site.attach(8)
            state = site.outcome(Discharge(ident, False), 8)
            assert isinstance(state, Rejected)
