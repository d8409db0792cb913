"""Listening sockets, and the peers of accepted sockets."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.config.listeners import ListenSection, RocketmqSection
from escrowmq.server.handshake import TlsListener
from escrowmq.server.intake import ACCEPTED
from escrowmq.server.tls import certificate_user
from escrowmq.units import Address
from escrowmq.wire.endpoint import Peer

if TYPE_CHECKING:
    from escrowmq.server.connection import ClientConnection


ADDRESS: Final = "--listen, or listen.address in the file of --config"
"""The setting of the address without TLS, for errors."""


class Bound(NamedTuple):
    """Sockets that are bound to an address and do not listen yet. `setting` is that of the address."""

    scheme: str
    host: str
    sockets: list[socket.socket]
    setting: str = ADDRESS

    @property
    def url(self) -> str:
        return f"{self.scheme}://{shown(self.host, port_of(self.sockets[0]))}"

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


def bind_all(section: ListenSection) -> list[Bound]:
    """Bind the configured addresses, first the one without TLS. Raises OSError as `bind` does."""
    bound = [Bound("amqp", section.address.host, bind(*section.address))]
    if section.tls_address is not None:
        try:
            setting = "listen.tls_address in the file of --config"
            bound.append(Bound("amqps", section.tls_address.host, bind(*section.tls_address, setting), setting))
        except OSError:
            bound[0].close()
            raise
    return bound


HTTP_SCHEMES: Final = ("http", "https")
ROCKETMQ_SCHEMES: Final = ("rocketmq", "rocketmq+broker", "rocketmq+grpc")
"""The schemes of the name server, the broker and the endpoint for gRPC, in URLs of listeners."""


def bind_rocketmq(section: RocketmqSection) -> list[Bound]:
    """Bind the addresses for clients of RocketMQ. Raises OSError as `bind` does."""
    addresses = {
        "name_server_address": section.name_server_address,
        "broker_address": section.broker_address,
        "grpc_address": section.grpc_address,
    }
    bound: list[Bound] = []
    try:
        for scheme, (key, address) in zip(ROCKETMQ_SCHEMES, addresses.items(), strict=True):
            setting = f"rocketmq.{key} in the file of --config"
            bound.append(Bound(scheme, address.host, bind(address.host, address.port, setting), setting))
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def bind_http(address: Address, *, tls: bool) -> Bound:
    """Bind the address for HTTP. Raises OSError as `bind` does."""
    setting = "--http, or http.address in the file of --config"
    return Bound(HTTP_SCHEMES[tls], address.host, bind(address.host, address.port, setting), setting)


def bind(host: str, port: int, setting: str = ADDRESS) -> list[socket.socket]:
    """Bind a socket to each address of the host name. With port 0, all use the same free port.

    Raises OSError with a text that names the address, the `setting` that it comes from, and what to do.
    """
    sockets: list[socket.socket] = []
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, target in dict.fromkeys(infos):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            # Accepted sockets inherit these.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound = port if sock is sockets[0] else port_of(sockets[0])
            sock.bind((target[0], bound, *target[2:]))
            sock.setblocking(False)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise _refusal(error, shown(host, port), setting) from error
    return sockets


def _refusal(error: OSError, address: str, setting: str) -> OSError:
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror  # negative numbers come from name resolution
    match number:
        case errno.EADDRINUSE:
            advice = "stop the program that listens there, or choose another port"
        case errno.EACCES:
            advice = "choose a port above 1023, or give the process the right to use this one"
        case _:
            advice = "choose an address of this machine"
    return OSError(number, f"cannot listen on {address}: {reason}; {advice} ({setting})")


def port_of(sock: socket.socket) -> int:
    """Return the port to which a socket is bound."""
    port: int = sock.getsockname()[1]
    return port


def shown(host: str, port: int) -> str:
    """Return `HOST:PORT`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def listen(
    bound: Bound,
    factory: Callable[[], ClientConnection],
    *,
    backlog: int,
    context: ssl.SSLContext | None,
    login: float,
    plain: bool = False,
) -> list[asyncio.Server | TlsListener]:
    """Accept connections. With a context, a TLS handshake comes first and may take `login` seconds. With `plain`,
    clients without TLS are accepted as well.

    In one iteration of asyncio's own loop, at most `ACCEPTED` clients without TLS are accepted, and one in uvloop's.
    Raises OSError if another process has begun to listen on the address.
    """
    loop = asyncio.get_running_loop()
    listeners: list[asyncio.Server | TlsListener] = []
    try:
        for sock in bound.sockets:
            if context is None:
                listeners.append(await loop.create_server(factory, sock=sock, backlog=ACCEPTED))
                sock.listen(backlog)  # for the kernel; asyncio's loop accepts as many at once as it was told
            else:
                sock.listen(backlog)
                listeners.append(TlsListener(sock, factory, context, login, plain=plain))
    except OSError as error:
        raise _refusal(error, bound.url, bound.setting) from error
    return listeners


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Return the peer of a transport."""
    name = transport.get_extra_info("peername") or ("?", 0)
    tls = transport.get_extra_info("ssl_object") is not None
    user = certificate_user(transport.get_extra_info("peercert")) if tls else None
    local = transport.get_extra_info("sockname")
    local_host = str(local[0]) if isinstance(local, tuple) and local else ""
    return Peer(str(name[0]), int(name[1]), is_loopback(str(name[0])), tls, user, local_host)


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Return whether a numeric address is this machine's own, as such or as IPv4 within IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
