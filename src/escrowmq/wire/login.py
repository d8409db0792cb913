"""Logging in: mechanisms on offer, the server's verdict, the virtual host. All protocols share it.

An endpoint has one `Login`. It offers `mechanisms`, passes the client's first response to `authenticate`, and further
ones to `respond`, and calls `enter` for the virtual host that the client names. When the protocol's opening sequence is
complete, the endpoint calls `admit` to tell the server. The server closes a connection that is not admitted in time, so
endpoints need no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from escrowmq.core.access.door import Door
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.endpoint import Verdict
from escrowmq.wire.sasl import Credentials, SaslError, parse
from escrowmq.wire.scram.keys import HASHES
from escrowmq.wire.scram.messages import ScramError
from escrowmq.wire.scram.server import ServerExchange

if TYPE_CHECKING:
    from escrowmq.core.access.grant import Grant
    from escrowmq.core.access.rules import AccessRules
    from escrowmq.wire.endpoint import Endpoint, Host, Peer

EXTERNAL = "EXTERNAL"


class LoginFault(Exception):  # noqa: N818 - a fault of the client, which gets the text
    """A login that cannot be tried. The text names the fault and never contains the client's response."""


def _ignore(_: object) -> None:
    """Nobody waits for an answer."""


class Login:
    """The login of one connection."""

    __slots__ = (
        "_challenge",
        "_done",
        "_door",
        "_endpoint",
        "_exchange",
        "_grant",
        "_host",
        "_renewing",
        "_vhost",
        "final",
        "mechanisms",
        "user",
    )

    def __init__(self, host: Host, endpoint: Endpoint, peer: Peer) -> None:
        self._host = host
        self._endpoint = endpoint
        self._vhost: VirtualHost[Queue] | None = None
        self._grant: Grant | None = None  # the rights of a token
        self._door: Door | None = None
        self._renewing = False
        # EXTERNAL is offered only with a client certificate: some clients choose it whenever it is on offer.
        certified = peer.certificate_user is not None
        self.mechanisms = tuple(name for name in host.mechanisms if certified or name != EXTERNAL)
        self.user = ""
        """The authenticated user; empty before the verdict and after a refusal."""
        self.final = b""
        """Data of the mechanism for the client after an accepted login; most mechanisms have none."""
        self._exchange: ServerExchange | None = None
        self._challenge: Callable[[bytes], None] = _ignore
        self._done: Callable[[bool], None] = _ignore

    @property
    def vhost_name(self) -> str:
        """The virtual host that the client entered; empty before that."""
        return self._vhost.name if self._vhost is not None else ""

    def authenticate(
        self,
        mechanism: str,
        response: bytes,
        done: Callable[[bool], None],
        challenge: Callable[[bytes], None],
        decode_fields: Callable[[bytes], Mapping[str, object]] | None = None,
    ) -> None:
        """Let the server check the initial response of `mechanism`.

        `done` is called with True if the server accepts the login (`user` and `final` are set then), and with False if
        the server refuses it, either at once or in a later turn. Mechanisms with several steps call `challenge` with
        data for the client first, whose answer goes to `respond`. `decode_fields` is the same as in `sasl.parse`.

        Raises:     LoginFault: the mechanism is not on offer, or the response is malformed.
        """
        if mechanism not in self.mechanisms:
            raise self._fault(f"unknown mechanism '{mechanism}'; offered are {', '.join(self.mechanisms)}")
        self._challenge, self._done = challenge, done
        if mechanism in HASHES:
            self._exchange = ServerExchange(partial(self._host.challenge, mechanism))
            if response:
                self.respond(response)
            else:
                challenge(b"")  # a client without an initial response sends it as an answer
            return
        try:
            credentials = parse(mechanism, response, decode_fields)
        except SaslError as error:
            raise self._fault(str(error)) from None
        self._ask(credentials, b"")

    def respond(self, response: bytes) -> None:
        """Take the client's answer to a challenge. Raises LoginFault if it is malformed."""
        exchange = self._exchange
        if exchange is None:
            raise self._fault("a response without a challenge")
        try:
            result = exchange.step(response)
        except ScramError as error:
            raise self._fault(f"SCRAM: {error}") from None
        if isinstance(result, bytes):
            self._challenge(result)
        else:
            self._exchange = None
            self._ask(Credentials(result.keys.mechanism, result.user, proof=result), result.signature())

    def _fault(self, text: str) -> LoginFault:
        """Return the fault to raise. The server logs it like a refusal, since most clients do not show it."""
        self._host.login_judged(self._endpoint, "a client", Verdict(None, text))
        return LoginFault(text)

    def _ask(self, credentials: Credentials, final: bytes) -> None:
        """Let the server judge. `final` is for the client if the login is accepted."""

        def judged(verdict: Verdict) -> None:
            self.user, self._grant = verdict.user or "", verdict.grant
            self.final = final if self.user else b""
            self._done(verdict.user is not None)

        self._host.authenticate(self._endpoint, credentials, judged)

    def enter(self, name: str) -> VirtualHost[Queue]:
        """Enter the virtual host `name`. Raises BrokerError (NOT_ALLOWED) if the user must not use it, or if a limit on
        connections is reached.
        """
        broker = self._host.broker
        self.access.check_vhost(self.user, name)
        self._host.check_room(self._endpoint, self.user, name)
        self._vhost = broker.directory.vhost(name)
        return self._vhost

    @property
    def access(self) -> AccessRules:
        """The rights of the user: those of its token, or those in the list of users."""
        return self._grant or self._host.broker.access

    def door(self) -> Door:
        """Return the user's door to the virtual host that the client has entered."""
        assert self._vhost is not None
        broker = self._host.broker
        self._door = Door(self.access, self.user, self._vhost, broker.engine.requests, broker.operations)
        return self._door

    def renew(self, secret: bytes, done: Callable[[str], None]) -> None:
        """Take a new secret, which is a token if the client has logged in by one; a password does not change.

        `done` is called with the reason of a refusal, or an empty text, either at once or in a later turn. The former
        token stays in effect after a refusal.
        """
        if self._grant is None:
            self._host.password_changed(self._endpoint, secret)
            done("")
            return
        if self._renewing:
            done("the former new token is not checked yet")
            return
        self._renewing = True

        def judged(verdict: Verdict) -> None:
            self._renewing = False
            if verdict.grant is None:
                done("the new token was refused; the broker's log has the reason")
            elif verdict.user != self.user:
                done("the new token is another user's")
            else:
                self._grant = verdict.grant
                if self._door is not None:
                    self._door.renew(verdict.grant)
                done("")

        self._host.renew(self._endpoint, secret.decode("utf-8", "replace"), judged)

    def admit(self) -> None:
        """Tell the server that the client is logged in and has entered its virtual host."""
        self._host.admitted(self._endpoint, self.user, self.vhost_name)
