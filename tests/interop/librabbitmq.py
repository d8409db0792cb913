"""A minimal binding to the C client librabbitmq, which calls it as a C program would.

The library is part of Debian's amqp-tools; no compiler is needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from types import TracebackType
from typing import Any, Final, Self

_PLAIN: Final = 0
_NORMAL: Final = 1
_SERVER_EXCEPTION: Final = 3
_CHANNEL_CLOSE: Final = 0x0014_0028
_CONNECTION_CLOSE: Final = 0x000A_0032
_GET_OK: Final = 0x003C_0047
_DELIVERY_MODE: Final = 1 << 12


class Bytes(Structure):
    """amqp_bytes_t"""

    _fields_ = (("len", c_size_t), ("bytes", c_void_p))

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.bytes, self.len) if self.len else b""


class Table(Structure):
    """amqp_table_t"""

    _fields_ = (("num_entries", c_int), ("entries", c_void_p))


class Method(Structure):
    """amqp_method_t"""

    _fields_ = (("id", c_uint32), ("decoded", c_void_p))


class Reply(Structure):
    """amqp_rpc_reply_t"""

    _fields_ = (("reply_type", c_int), ("reply", Method), ("library_error", c_int))


class Close(Structure):
    """amqp_channel_close_t, amqp_connection_close_t"""

    _fields_ = (("reply_code", c_uint16), ("reply_text", Bytes))


class GetOk(Structure):
    """amqp_basic_get_ok_t"""

    _fields_ = (
        ("delivery_tag", c_uint64),
        ("redelivered", c_int),
        ("exchange", Bytes),
        ("routing_key", Bytes),
        ("message_count", c_uint32),
    )


class Properties(Structure):
    """amqp_basic_properties_t; the library reads only the fields named in `flags`."""

    _fields_ = (
        ("flags", c_uint32),
        ("content_type", Bytes),
        ("content_encoding", Bytes),
        ("headers", Table),
        ("delivery_mode", c_uint8),
        ("priority", c_uint8),
        ("texts", Bytes * 4),
        ("timestamp", c_uint64),
        ("more_texts", Bytes * 4),
    )


class Message(Structure):
    """amqp_message_t"""

    _fields_ = (("properties", Properties), ("body", Bytes), ("pool", c_uint8 * 256))


class ReplyError(Exception):
    """The broker closed the channel or the connection with this code and text. Code 0 is an error of the library."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


def load() -> Any:
    """Return the library; None if it is not installed."""
    name = ctypes.util.find_library("rabbitmq")
    if name is None:
        return None
    library: Any = ctypes.CDLL(name)
    for function in ("amqp_new_connection", "amqp_tcp_socket_new", "amqp_channel_open", "amqp_queue_declare"):
        getattr(library, function).restype = c_void_p
    for function in ("amqp_tx_select", "amqp_tx_commit", "amqp_tx_rollback", "amqp_confirm_select"):
        getattr(library, function).restype = c_void_p
    for function in ("amqp_login", "amqp_get_rpc_reply", "amqp_basic_get", "amqp_read_message", "amqp_channel_close"):
        getattr(library, function).restype = Reply
    return library


def text(value: str) -> Bytes:
    """Convert a string to amqp_bytes_t. The result keeps the characters alive."""
    data = value.encode()
    made = Bytes(len(data), ctypes.cast(c_char_p(data), c_void_p))
    made.keep = data
    return made


class Client:
    """A connection. All methods raise ReplyError."""

    def __init__(self, library: Any, port: int, password: str = "guest", vhost: str = "/") -> None:
        self._library = library
        self._state = c_void_p(library.amqp_new_connection())
        socket = c_void_p(library.amqp_tcp_socket_new(self._state))
        try:
            if library.amqp_socket_open(socket, b"127.0.0.1", c_int(port)):
                raise ReplyError(0, "no connection")
            login = library.amqp_login(
                *(self._state, vhost.encode(), c_int(0), c_int(131072), c_int(0), c_int(_PLAIN)),
                *(c_char_p(b"guest"), c_char_p(password.encode())),
            )
            self._check(login)
        except ReplyError:
            self._library.amqp_destroy_connection(self._state)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._library.amqp_destroy_connection(self._state)

    def _check(self, reply: Reply) -> Reply:
        if reply.reply_type == _NORMAL:
            return reply
        if reply.reply_type == _SERVER_EXCEPTION and reply.reply.id in (_CHANNEL_CLOSE, _CONNECTION_CLOSE):
            close = ctypes.cast(reply.reply.decoded, POINTER(Close)).contents
            raise ReplyError(close.reply_code, bytes(close.reply_text).decode())
        raise ReplyError(0, f"reply type {reply.reply_type}, library error {reply.library_error}")

    def call(self, function: str, channel: int, *arguments: Any) -> None:
        """Call a function with a plain answer, such as `amqp_tx_commit` or `amqp_channel_open`."""
        getattr(self._library, function)(self._state, c_uint16(channel), *arguments)
        self._check(self._library.amqp_get_rpc_reply(self._state))

    def declare(self, channel: int, queue: str, *, passive: bool = False, exclusive: bool = False) -> None:
        flags = (c_int(passive), c_int(0), c_int(exclusive), c_int(0))
        self.call("amqp_queue_declare", channel, text(queue), *flags, Table())

    def publish(self, channel: int, queue: str, body: str) -> None:
        """Publish a persistent message through the default exchange."""
        properties = Properties(flags=_DELIVERY_MODE, delivery_mode=2)
        where = (text(""), text(queue), c_int(0), c_int(0))
        publish = self._library.amqp_basic_publish
        error = publish(self._state, c_uint16(channel), *where, byref(properties), text(body))
        if error:
            raise ReplyError(0, f"library error {error}")

    def get(self, channel: int, queue: str, *, no_ack: bool = False) -> tuple[int, bytes] | None:
        """Get the next message. Returns its tag and body; None if the queue is empty."""
        answer = self._library.amqp_basic_get(self._state, c_uint16(channel), text(queue), c_int(no_ack))
        reply = self._check(answer)
        if reply.reply.id != _GET_OK:
            return None
        tag = ctypes.cast(reply.reply.decoded, POINTER(GetOk)).contents.delivery_tag
        message = Message()
        self._check(self._library.amqp_read_message(self._state, c_uint16(channel), byref(message), c_int(0)))
        body = bytes(message.body)
        self._library.amqp_destroy_message(byref(message))
        return tag, body

    def ack(self, channel: int, tag: int) -> None:
        self._library.amqp_basic_ack(self._state, c_uint16(channel), c_uint64(tag), c_int(0))
