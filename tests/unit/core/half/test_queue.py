"""The hidden queue in which half messages wait."""

from __future__ import annotations

from escrowmq.core.half.queue import NAME, RECENT_BYTES, HalfQueue
from tests.unit.core.half.half_site import HalfSite


def hidden(site: HalfSite) -> HalfQueue:
    queue = site.vhost.hidden[NAME]
    assert isinstance(queue, HalfQueue)
    return queue


def test_the_queue_is_in_no_list_and_clients_cannot_reach_it() -> None:
    site = HalfSite()
    site.store("m")
    assert NAME not in site.vhost.queues
    assert hidden(site) in site.vhost.every_queue()


def test_recent_messages_are_bounded_and_others_are_read_from_the_log() -> None:
    site = HalfSite()
    body = bytes(RECENT_BYTES // 4)
    for i in range(6):
        site.store(f"m{i}", body + bytes([i]))
    site.sync()
    assert [(hidden(site).load(number) or (None, b""))[1][-1:] for number in (1, 6)] == [b"\0", b"\5"]
    assert hidden(site).load(7) is None
    assert hidden(site).entry(7, whole=True) is None


def test_an_entry_names_the_block_and_has_the_content_only_if_it_is_wanted() -> None:
    site = HalfSite()
    site.store("m", b"body")
    whole, bare = hidden(site).entry(1, whole=True), hidden(site).entry(1, whole=False)
    assert whole is not None
    assert bare is not None
    assert (whole.content, bare.content) == (b"body", b"")
    assert whole.run.lsn == bare.run.lsn > 0


def test_a_deleted_virtual_host_takes_its_half_messages_with_it() -> None:
    site = HalfSite()
    site.store("m")
    site.sync()
    assert site.broker.holdings.of_vhost("/") > 0
    site.broker.directory.delete_vhost("/")
    site.turn()
    assert site.broker.holdings.of_vhost("/") == 0
    assert site.half.at("/", 1) is None
    assert site.live() == 0
    again = site.again()
    assert again.half.at("/", 1) is None
    assert again.store("m").number == 1
