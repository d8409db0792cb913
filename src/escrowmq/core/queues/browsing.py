"""Browsers: consumers that see the messages of a queue without taking them (distribution mode *copy* of AMQP 1.0).

A browser gets each message that is ready when it comes past, in the order of the queue, and later ones as they arrive.
It does not get messages that a consumer or a branch holds at that time, and no message twice. Nothing that a browser
does changes the queue: its deliveries are never settled, and it does not count as a consumer of the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.budget import EXAMINED
from escrowmq.core.queues.rotation import Consumers
from escrowmq.core.queues.selection import PIECE, Sight
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.fifo import Fifo
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue


def add_browser(queue: Queue, browser: Consumer) -> None:
    """Attach a browser. A stream serves it like any consumer, since its consumers take nothing."""
    if queue.is_stream:
        queue.consumers.add(browser)
        return
    if queue.browsers is None:
        queue.browsers = Consumers()
    browser.line = queue.browsers
    browser.sight = Sight()
    queue.browsers.add(browser)


def show(queue: Queue, browsers: Consumers, host: Host) -> bool:
    """Show a piece of the queue to one browser. Return whether there may be more to show."""
    browsers.admit_news(queue.visible_end)
    found = browsers.next(1) if host.budget.left > 0 else []
    if found:
        browser = found[0]
        if browser.sight is not None and browser.sight.through != queue.visible_end:
            _show_piece(queue, browser, browser.sight, host)
            if _is_halted(browser):
                browsers.rest(browser)
                browsers.idle[browser] = None
        else:
            browsers.rest(browser)
            browsers.idle[browser] = None
    for browser in list(browsers.draining):
        sight = browser.sight
        done = browser.credit.left <= 0 or _is_halted(browser)
        if not browser.draining or done or (sight and sight.through == queue.visible_end):
            del browsers.draining[browser]
            browser.end_drain()
    return bool(found) or host.budget.left <= 0


def _is_halted(browser: Consumer) -> bool:
    """Whether the credit in bytes of `browser` is used up, or is not enough for the next message."""
    credit = browser.byte_credit
    return credit is not None and (credit.halted or credit.left <= 0)


def _show_piece(queue: Queue, browser: Consumer, sight: Sight, host: Host) -> None:
    seen: list[Entry] = []

    def keep(level: Fifo, entries: list[Entry]) -> None:
        del level
        seen.extend(entries)

    selects = browser.selects
    wanted = None if selects is None else lambda entry: selects(queue, entry)
    try:
        most = min(browser.room(), PIECE)
        host.budget.left -= EXAMINED * sight.look(queue, most, wanted, keep, browser.byte_credit)
    except LogUnreadable as error:
        host.unavailable.suspend(queue, error)
    if queue.retimed_below:
        queue.retime(seen)
    alive = [entry for entry in seen if not 0 < entry.run.expires_at < host.now]
    if alive and browser.receiver is not None:
        browser.spend(len(alive), alive)
        browser.receiver.deliver(browser, alive)
        browser.settled(len(alive))
