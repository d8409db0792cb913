"""Transfers from producers: parts become messages, and messages that look alike become runs (section 2.6.12).

Most transfers differ from the one before only in size, delivery number, tag and content. They are read by slices. All
others are decoded, which also teaches the reader the form of the next ones.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.performatives import SECOND, Transfer
from escrowmq.wire.amqp10.codec.sections import claims_user
from escrowmq.wire.amqp10.codec.states import TransactionalState
from escrowmq.wire.amqp10.coordinator import CoordinatorLink
from escrowmq.wire.amqp10.errors import (
    DECODE_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNATTACHED_HANDLE,
    AmqpFault,
    link_fault,
    refusal,
    session_fault,
)
from escrowmq.wire.amqp10.identity import unclaimed
from escrowmq.wire.amqp10.incoming import Mode, Post, ProducerLink, PublishForm
from escrowmq.wire.amqp10.management.links import RequestLink
from escrowmq.wire.amqp10.parts import Parts
from escrowmq.wire.amqp10.shape import TransferShape
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.connection import Connection
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.session import Session
    from escrowmq.wire.amqp10.transactions import LocalTransaction

_TRANSFER: Final = b"\x00\x53\x14\xc0"
_HEADER_SECTION: Final = b"\x00\x53\x70\xc0"
_DELIVERY_ANNOTATIONS: Final = b"\x00\x53\x71"
_MESSAGE_ANNOTATIONS: Final = b"\x00\x53\x72"
_SECTION: Final = b"\x00\x53"
_DESCRIBED: Final = (b"\x00", b"")  # how content begins; a message without any section is passed on as it is
_FURTHER_KEYS: Final = b"x-cc"  # the annotation with further routing keys
_TRANSACTIONAL: Final = b"\x00\x53\x34\xc0"
_ID_OF_EIGHT: Final = b"\xa0\x08"
_SHORT_HANDLES: Final = (0x43, 0x52)
_NUMBERS: Final = {0x70: 5, 0x52: 2}  # bytes of a delivery number, by its first one
_U32: Final = struct.Struct(">I")
_LEAST: Final = 32  # bytes of a frame that is read by slices
_ENDINGS: Final = 64  # endings of transfers that are remembered
_LONGEST_TAG: Final = 32
SETTLED: Final = Mode(settled=True)
UNSETTLED: Final = Mode(settled=False)


_COMMANDED: Final = (CoordinatorLink, RequestLink)
"""The ends of links whose messages are commands to the broker."""

Extent: TypeAlias = tuple[int, int, int]
"""The places of a performative, of its payload, and of the end of the frame."""


class Transfers:
    """Reads the transfers of one connection, and publishes them in runs."""

    __slots__ = (
        "_connection",
        "_contents",
        "_endings",
        "_first",
        "_form",
        "_link",
        "_longest",
        "_mode",
        "_parts",
        "_tags",
        "_transacted",
        "_unchecked",
        "rest",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Longer frames are decoded, because the sizes of their messages' sections are checked.
        self._longest = min(connection.limits.frame_max, connection.limits.header_size)
        self._parts: dict[Link, Parts] = {}
        # The count of fields and the bytes behind the tag, of transfers that are whole and plain.
        self._endings: dict[bytes, Mode] = {}
        # Of the last ending with a transaction: the bytes before and behind its id, and whether posts are settled.
        self._transacted: tuple[bytes, bytes, bool] | None = None
        # The run that was read and is not published yet: messages of one form with consecutive numbers.
        self._link: ProducerLink | None = None
        self._form: PublishForm | None = None
        self._first = 0
        self._contents: list[bytes] = []
        self._tags: list[bytes] = []
        self._mode = UNSETTLED
        self._unchecked = 0  # messages of the run up to the last one that is not known to be plain (`shape`)
        self.rest: tuple[Session, Iterator[bool]] | None = None
        """The rest of the last publish. Until it has come to its end, nothing else may be published."""

    # -- runs

    def publish_now(self) -> None:
        """Publish the messages that were read. The caller sees to it that no `rest` is left."""
        link, form, contents = self._link, self._form, self._contents
        if link is None or form is None:
            return
        post = Post(form, contents, self._first, self._tags, self._mode, self._unchecked)
        self._link, self._form, self._contents, self._tags, self._unchecked = None, None, [], [], 0
        if link.link.end is not link:
            return  # the link was detached meanwhile
        self._connection.large_bodies = len(contents[-1]) >= LARGE
        self._connection.answered = not post.mode.settled
        try:
            link.spend(len(contents))
            rest = link.publish(post)
        except (AmqpFault, BrokerError) as error:
            self._refuse(link, post, error)
            return
        if rest is not None:
            self._await(link.link.session, self._guarded(link, post, rest))

    def _guarded(self, link: ProducerLink, post: Post, rest: Iterator[bool]) -> Iterator[bool]:
        try:
            yield from rest
        except (AmqpFault, BrokerError) as error:
            self._refuse(link, post, error)

    def _await(self, session: Session, rest: Iterator[bool]) -> None:
        """Begin with the rest of a publish, and keep what cannot be done now."""
        for _ in rest:
            self.rest = session, rest
            break

    @property
    def wide(self) -> bool:
        """Whether publishing the messages that were read may take several turns."""
        return self._link is not None and self._form is not None and self._link.wide(self._form)

    def drop(self) -> None:
        """Forget the messages that were read, because the connection ends before they can be published."""
        self._link, self._form, self._contents, self._tags, self._unchecked = None, None, [], [], 0

    def _refuse(self, link: ProducerLink, post: Post, error: AmqpFault | BrokerError) -> None:
        try:
            for i in range(len(post.contents)):
                tag = post.tags[i] if post.tags else b""
                link.refuse(post.first + i, tag, post.contents[i], error, post.mode)
        except BrokerError as fault:
            link.link.fail(refusal(fault))
        except AmqpFault as fault:
            link.link.fail(fault)

    def _add(self, link: ProducerLink, number: int, tag: bytes, form: PublishForm, content: bytes, mode: Mode) -> None:
        """Add a message to the run, or begin another one with it."""
        if (
            form is not self._form
            or link is not self._link
            or mode is not self._mode
            or number != self._first + len(self._contents)
        ):
            self.publish_now()
            self._link, self._form, self._first, self._mode = link, form, number, mode
        self._contents.append(content)
        self._unchecked = len(self._contents)
        if not mode.settled:
            self._tags.append(tag)

    # -- by slices

    def read(self, data: bytes, at: int, end: int, channel: int) -> int:
        """Read the whole and plain transfers on `channel` that begin at `at`. Return where the first other frame
        begins, which may be `at`. Raises AmqpFault that costs the connection.
        """
        session = self._connection.sessions.get(channel)
        if session is None or session.ending:
            return at
        frames = 0
        head = b"\x02\x00" + channel.to_bytes(2, "big") + _TRANSFER
        startswith, unpack, endings = data.startswith, _U32.unpack_from, self._endings
        link: ProducerLink | None = None
        handle, most = -1, self._longest
        while end - at >= _LEAST and startswith(head, at + 4):
            size = unpack(data, at)[0]
            stop = at + size
            payload = at + 13 + data[at + 12]
            if stop > end or not _LEAST <= size <= most or payload >= stop:
                break
            # Handle, number and tag, in their shortest encodings; the rest is known, or is decoded.
            p = at + 15
            found = 0
            if data[at + 14] != 0x43:
                if data[at + 14] != 0x52:
                    break
                found = data[p]
                p += 1
            code = data[p]
            if code == 0x70:
                number = unpack(data, p + 1)[0]
                p += 5
            elif code == 0x52:
                number = data[p + 1]
                p += 2
            else:
                break
            tag_end = p + 2 + data[p + 1]
            mode = endings.get(data[at + 13 : at + 14] + data[tag_end:payload])
            if mode is None or data[p] != 0xA0 or tag_end - p > _LONGEST_TAG + 2:
                break
            if found != handle:
                link = self._plain_link(session, found)
                handle = found
            content = payload
            if startswith(_HEADER_SECTION, payload):
                if payload + 4 >= stop:
                    break
                content += 5 + data[payload + 4]
            if link is None or not startswith(_SECTION, content) or startswith(_DELIVERY_ANNOTATIONS, content):
                break
            annotated = startswith(_MESSAGE_ANNOTATIONS, content)
            if (annotated and data.find(_FURTHER_KEYS, content, stop) >= 0) or claims_user(data, content, stop):
                break
            form = link.forms.get(data[payload:content])
            if form is None or content >= stop:
                break
            self._add(link, number, data[p + 2 : tag_end], form, data[content:stop], mode)
            begin, at, frames = at, stop, frames + 1
            if self.rest is not None:  # this message follows when the last ones are published
                break
            if (
                code == 0x70
                and end - stop >= _LEAST
                and startswith(data[begin + 4 : p - 4], stop + 4)
                and not annotated
            ):
                at, more = self._alike(data, stop, TransferShape(data, begin, p, tag_end, content, stop))
                frames += more
        if frames:
            self._received(session, frames)
        return at

    def _alike(self, data: bytes, at: int, shape: TransferShape) -> tuple[int, int]:
        """Add the transfers from `at` on that have this shape, which is that of the last message of the run, to the
        run. Return where the first other frame begins, and how many there were.
        """
        if shape.plain and self._unchecked == len(self._contents):
            self._unchecked -= 1
        number = self._first + len(self._contents)
        most, tagged = self._longest, not self._mode.settled
        contents, tags, end, plain = shape.read(data, at, number, most, tagged=tagged)
        count = len(contents)
        if not plain:
            count = unclaimed(contents)  # the first message with a user-id is decoded
            end -= sum([shape.content_at + len(content) for content in contents[count:]])
            del contents[count:], tags[count:]
        self._contents += contents
        self._tags += tags
        if not plain:
            self._unchecked = len(self._contents)
        return end, count

    def _plain_link(self, session: Session, handle: int) -> ProducerLink | None:
        """Return the link with this handle, if its next transfer begins a message."""
        link = session.links.get(handle)
        if link is None or link in self._parts or not isinstance(link.end, ProducerLink):
            return None
        return link.end

    @staticmethod
    def _received(session: Session, frames: int) -> bool:
        try:
            session.received(frames)
        except AmqpFault as fault:
            session.fail(fault)
        return not session.ending

    # -- frame by frame

    def part(self, session: Session, transfer: Transfer, data: bytes, extent: Extent) -> Iterator[None] | None:
        """Handle one transfer. The result is a task if its work ends in a later turn. Raises AmqpFault, BrokerError."""
        start, at, end = extent
        if session.ending or not self._received(session, 1):
            return None
        link = session.links.get(transfer.handle)
        if link is None:
            raise session_fault(UNATTACHED_HANDLE, f"handle {transfer.handle} is not attached")
        if link.detaching:
            self.forget(link)
            return None
        end_of_link = link.end
        if not isinstance(end_of_link, (ProducerLink, *_COMMANDED)):
            raise link_fault(NOT_ALLOWED, "a transfer on a link on which the broker sends")
        try:
            parts = self._parts_of(link, end_of_link, transfer)
        except AmqpFault:
            self.forget(link)
            raise
        if transfer.aborted:
            self.forget(link)
            self.publish_now()
            end_of_link.spend(1)
            if parts.resumed and isinstance(end_of_link, ProducerLink):
                end_of_link.abort(parts.tag)
            return None
        parts.settled = parts.settled or bool(transfer.settled)
        parts.state = transfer.state or parts.state
        parts.size += end - at
        limits = self._connection.limits
        most = limits.message_size + limits.header_size if isinstance(end_of_link, ProducerLink) else limits.frame_max
        if parts.size > most:
            self.forget(link)
            raise link_fault(MESSAGE_SIZE_EXCEEDED, f"a message has more than {min(most, limits.message_size)} bytes")
        if not parts.skipped and parts.refusal is None:
            self._keep(parts, data[at:end], more=transfer.more)
        if not transfer.more:
            del self._parts[link]
            if isinstance(end_of_link, _COMMANDED):
                return self._command(end_of_link, parts)
            mode = _mode(parts)
            if parts.whole and transfer.rcv_settle_mode is None:
                self._learn(data, start, at, mode)
            try:
                self._finish(end_of_link, parts, mode)
            finally:
                parts.close()
        return None

    def _keep(self, parts: Parts, piece: bytes, *, more: bool) -> None:
        """Keep a part of a message. While others are to come, it counts for the user and the virtual host."""
        parts.add(piece)
        if more:
            try:
                parts.hold()
            except BrokerError as error:
                parts.refuse(error)

    def _parts_of(self, link: Link, end: ProducerLink | CoordinatorLink | RequestLink, transfer: Transfer) -> Parts:
        """Return the delivery that `transfer` begins or continues. Raises AmqpFault."""
        parts = self._parts.get(link)
        transaction: LocalTransaction | None = None
        if isinstance(transfer.state, TransactionalState):
            transaction = self._connection.transactions.find(transfer.state.txn_id)
            if isinstance(end, _COMMANDED):
                raise link_fault(NOT_ALLOWED, "a command to the broker cannot be part of a transaction")
        if parts is not None:
            if transaction is not None and transaction is not parts.transaction:
                raise link_fault(NOT_ALLOWED, "the transfers of one delivery belong to different transactions")
            if (transfer.delivery_id is not None and transfer.delivery_id != parts.number) or (
                transfer.delivery_tag is not None and transfer.delivery_tag != parts.tag
            ):
                raise link_fault(NOT_ALLOWED, "a delivery began before the last transfer of the one before it")
            return parts
        if transfer.delivery_id is None or transfer.delivery_tag is None:
            raise link_fault(INVALID_FIELD, "the first transfer of a delivery needs delivery-id and delivery-tag")
        if len(transfer.delivery_tag) > _LONGEST_TAG:
            raise link_fault(INVALID_FIELD, f"a delivery tag has more than {_LONGEST_TAG} bytes")
        if transfer.message_format:
            raise link_fault(NOT_IMPLEMENTED, f"message format {transfer.message_format} is not known")
        settled = bool(transfer.settled)
        if transfer.rcv_settle_mode == SECOND and not end.second and not settled:
            raise link_fault(INVALID_FIELD, "rcv-settle-mode second on a link whose mode is first")
        parts = self._parts[link] = Parts(
            link,
            transfer.delivery_id,
            transfer.delivery_tag,
            settled=settled,
            transaction=transaction,
            resumed=transfer.resume,
            skipped=transfer.resume and not (isinstance(end, ProducerLink) and end.knows(transfer.delivery_tag)),
        )
        partial = end.partial(parts.tag) if transfer.resume and isinstance(end, ProducerLink) else None
        if partial is not None:
            parts.continue_from(partial, transfer.state)
        return parts

    def _command(self, link: CoordinatorLink | RequestLink, parts: Parts) -> Iterator[None] | None:
        """Let the link's end execute a whole command, after everything that was posted before. The result is a task if
        it ends in a later turn. Raises AmqpFault.
        """
        self.publish_now()
        message = parts.message() or b""
        parts.close()
        link.spend(1)
        task = link.command(parts.number, message, settled=parts.settled)
        if not link.link.detaching:
            link.grant()
        return task

    def _finish(self, link: ProducerLink, parts: Parts, mode: Mode) -> None:
        """Add a whole message to the run. Raises AmqpFault."""
        if parts.skipped:  # nothing is resumed that the broker does not hold; the credit is granted again
            self.publish_now()
            link.spend(1)
            return
        message = parts.message()
        if parts.resumed or parts.refusal is not None or message is None:
            self.publish_now()
            link.spend(1)
            if parts.refusal is not None or message is None:
                link.turn_away(parts.number, parts.tag, parts.refusal, mode)
                return
            if not parts.continues and (parts.settled or not message):
                link.resume_outcome(parts.number, parts.tag, parts.state, settled=parts.settled)
                return
        try:
            form, content = link.form_for(message)
            if content[:1] not in _DESCRIBED:
                raise CodecError("a message begins with something that is no section")
        except CodecError as error:
            raise link_fault(DECODE_ERROR, str(error)) from None
        except (BrokerError, AmqpFault) as error:
            if not parts.resumed:
                self.publish_now()
                link.spend(1)
            link.refuse(parts.number, parts.tag, message, error, mode)
            return
        if parts.resumed:
            rest = link.resume_message(Post(form, [content], parts.number & MASK, [parts.tag], mode, 1))
            if rest is not None:
                self._await(link.link.session, rest)
            return
        self._add(link, parts.number & MASK, parts.tag, form, content, mode)

    def _learn(self, data: bytes, at: int, payload: int, mode: Mode) -> None:
        """Remember the ending of a transfer that is whole and plain, so that the next ones are read by slices."""
        if data[at : at + 4] != _TRANSFER or data[at + 6] not in _SHORT_HANDLES:
            return
        p = at + 7 if data[at + 6] == 0x43 else at + 8
        size = _NUMBERS.get(data[p])
        if size is None or data[p + size] != 0xA0:
            return
        tag_end = p + size + 2 + data[p + size + 1]
        ending = data[at + 5 : at + 6] + data[tag_end:payload]
        self._remember(ending, mode)
        if mode.transaction is not None:
            before, ident, after = ending.partition(mode.transaction.id)
            if ident and before[-8:-4] == _TRANSACTIONAL and before[-2:] == _ID_OF_EIGHT:
                self._transacted = before, after, mode.settled

    def _remember(self, ending: bytes, mode: Mode) -> None:
        if len(self._endings) >= _ENDINGS:
            self._endings.clear()
        self._endings[ending] = mode

    def expect(self, transaction: LocalTransaction) -> None:
        """Read posts in a new transaction by slices if they look like the last ones in another transaction."""
        if self._transacted is not None:
            before, after, settled = self._transacted
            self._remember(before + transaction.id + after, transaction.mode(settled=settled))

    def is_incomplete(self, transaction: LocalTransaction) -> bool:
        """Return whether further transfers of a post in `transaction` are to come."""
        return any(parts.transaction is transaction for parts in self._parts.values())

    def forget_transaction(self, transaction: LocalTransaction) -> None:
        """Forget the endings that name a transaction which has ended."""
        for ending in [ending for ending, mode in self._endings.items() if mode.transaction is transaction]:
            del self._endings[ending]

    def forget(self, link: Link) -> None:
        """Forget the incomplete delivery of a link."""
        parts = self._parts.pop(link, None)
        if parts is not None:
            parts.close()

    def interrupt(self, link: Link, loan: Loan) -> None:
        """Leave the incomplete delivery of a link that is gone with its terminus."""
        parts = self._parts.pop(link, None)
        if parts is not None:
            parts.interrupt(loan)


def _mode(parts: Parts) -> Mode:
    if parts.transaction is not None:
        return parts.transaction.mode(settled=parts.settled)
    return SETTLED if parts.settled else UNSETTLED
