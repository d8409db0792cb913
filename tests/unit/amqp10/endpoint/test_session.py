"""Sessions: begin, end, links by handle, and what happens to links when the session or the connection goes."""

from __future__ import annotations

import pytest

from escrowmq.amqp10.endpoint.link import LinkState
from escrowmq.amqp10.endpoint.session import SessionState
from escrowmq.amqp10.errors import LinkFailed, NodeNotFound, SessionFailed, UsageError
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec.performatives import Attach, Begin, Detach, End, Error, Transfer
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.harness.amqp10_peer import connected, receiving, reconnected, sending

NOT_FOUND = Error(condition=Symbol("amqp:not-found"), description="no queue q")


def test_a_refused_link_has_the_reason() -> None:
    _, peer, session = connected()
    link = session.outgoing_link("out", LinkOptions("q"))
    session.attach(link)
    peer.attach(link, 0, target=None)
    assert link.state is LinkState.REFUSED
    peer.send(Detach(link.handle, closed=True, error=NOT_FOUND))
    assert link.gone
    with pytest.raises(NodeNotFound, match=r"link out \(q\): amqp:not-found: no queue q"):
        link.check()
    assert peer.last(Detach).closed
    assert not session.links


def test_closing_a_link_frees_its_handle() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    link.detach(closed=True)
    assert peer.last(Detach).closed
    peer.send(Detach(link.handle, closed=True))
    assert link.gone
    with pytest.raises(LinkFailed, match="is closed"):
        link.check()
    assert sending(peer, session).handle == link.handle


def test_links_in_both_directions_may_have_one_name() -> None:
    _, peer, session = connected()
    out, into = sending(peer, session), receiving(peer, session)
    assert (out.handle, into.handle) == (0, 1)
    with pytest.raises(UsageError, match="already has a link 'out'"):
        session.outgoing_link("out", LinkOptions("q"))


def test_a_session_that_the_peer_ends_takes_its_links_along() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    peer.send(End(Error(condition=Symbol("amqp:session:window-violation"))))
    assert session.state is SessionState.GONE
    with pytest.raises(SessionFailed, match="window-violation"):
        session.check()
    with pytest.raises(LinkFailed, match="window-violation"):
        link.check()
    assert isinstance(peer.last(End), End)


def test_ending_a_session_closes_it_without_an_error() -> None:
    endpoint, peer, session = connected()
    session.end()
    assert isinstance(peer.last(End), End)
    peer.send(End())
    assert session.error is None
    assert endpoint.session().channel == session.channel
    assert len(peer.all(Begin)) == 2


def test_links_attach_again_on_the_next_connection() -> None:
    _, peer, session = connected()
    out, into = sending(peer, session), receiving(peer, session)
    again = reconnected(peer)
    assert [attach.name for attach in again.all(Attach)] == ["out", "in"]
    again.attach(out)
    again.attach(into)
    assert out.attached
    assert into.attached


def test_a_link_that_was_being_closed_does_not_come_back() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    link.detach(closed=True)
    assert not reconnected(peer).all(Attach)
    assert link.gone


def test_a_transfer_on_an_unknown_handle_closes_the_connection() -> None:
    endpoint, peer, _ = connected()
    peer.send(Transfer(9, delivery_id=0, delivery_tag=b"t"))
    assert "handle 9" in str(endpoint.error)
