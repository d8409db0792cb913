"""Logins: passwords, client certificates, and the cache of passwords that were correct."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from argon2.low_level import ARGON2_VERSION

from escrowmq.core.access.access import Access
from escrowmq.core.access.grant import Grant
from escrowmq.core.access.imported import parts
from escrowmq.core.access.permissions import PasswordHashes, User
from escrowmq.server.admission import network_of
from escrowmq.server.checks import Check, Checks
from escrowmq.server.passwords import HASHER
from escrowmq.server.scram import ScramUsers, keep
from escrowmq.server.secret_keys import SecretKeys
from escrowmq.server.tokens.logins import TokenLogins
from escrowmq.server.tokens.verifier import TokenRefused, is_token
from escrowmq.wire.endpoint import Peer, Verdict
from escrowmq.wire.sasl import TOKEN, Credentials
from escrowmq.wire.scram.server import Proof

GUEST: Final = "guest"
REFUSED: Final = "user or password is wrong"
_REMEMBERED: Final = 10_000
_TOLD: Final = 16
"""Clients that learn the outcome of a check in one turn. Each costs 50 to 150 µs, with the line in the log."""
_AT_ONCE: Final = 2
"""The maximum number of password checks that run at the same time."""

_log = logging.getLogger("escrowmq.auth")


class Judge(Protocol):
    """A callable for the outcome of a password check."""

    def __call__(self, *, right: bool) -> None: ...


class _Waiting(NamedTuple):
    """A client that waits for the outcome of a check, and whether it still does."""

    judge: Judge
    wanted: Callable[[], bool]


def _always() -> bool:
    return True


class Authenticator:
    """Checks logins. Passwords are checked on other threads; a keyed digest of each correct one makes the next login
    cheap.

    `post` passes a call from any thread to a turn. An unknown user takes the same time as a wrong password.
    """

    def __init__(
        self,
        access: Access,
        executor: Executor,
        post: Callable[[Callable[[], None]], None],
        scram: ScramUsers,
        record: Callable[[User], None],
        secret_keys: SecretKeys,
        tokens: TokenLogins | None = None,
        *,
        guest_loopback_only: bool = True,
        anonymous_user: str = "",
        hasher: PasswordHasher = HASHER,
        patience: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: the seconds that a client waits for its check (`limits.unauthenticated_seconds`). `record`
        makes a change of a user durable. Without `tokens`, none are accepted.
        """
        self.scram = scram
        self.secret_keys = secret_keys
        self.tokens = tokens
        self._record = record
        self._access = access
        self._executor = executor
        self._post = post
        self._guest_loopback_only = guest_loopback_only
        self._anonymous_user = anonymous_user
        self._hasher = hasher
        self._decoy = decoy(hasher)
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, str] = OrderedDict()
        self._waiting: dict[tuple[bytes, User | None], list[_Waiting]] = {}
        self._patience = patience
        self._clock = clock
        self._checks = Checks(clock)
        self._running = 0

    def authenticate(
        self,
        peer: Peer,
        credentials: Credentials,
        done: Callable[[Verdict], None],
        wanted: Callable[[], bool] = _always,
    ) -> None:
        """Call `done` with the verdict, either immediately or later in a separate turn.

        A password is not checked if `wanted` says that the client has disconnected; `done` is then not called.
        """
        if credentials.mechanism == "EXTERNAL":
            done(self._judged(peer, credentials.authcid, self._external(peer, credentials)))
        elif credentials.mechanism == "ANONYMOUS" and self._anonymous_user:
            done(self._judged(peer, self._anonymous_user, self._anonymous(peer)))
        elif credentials.proof is not None:
            self._prove(peer, credentials.proof, done, wanted)
        elif credentials.password is None:
            done(self._judged(peer, credentials.authcid, Verdict(None, "the mechanism proves nothing")))
        elif self.tokens is not None and _is_bearer(peer, credentials):
            self._check_token(self.tokens, peer, credentials.password, done, wanted)
        elif credentials.mechanism == TOKEN:
            done(_token_judged(peer, Verdict(None, "tokens are not accepted (tokens.issuer)")))
        else:
            self._check(peer, credentials.authcid, credentials.password, done, wanted)

    def _check(
        self,
        peer: Peer,
        name: str,
        password: str,
        done: Callable[[Verdict], None],
        wanted: Callable[[], bool],
    ) -> None:
        user = self._access.users.get(name)
        digest = self._digest(name, password)
        if user is not None and user.password_hash and self._right.get(digest) == user.password_hash:
            self._right.move_to_end(digest)
            done(self._judged(peer, name, self._admitted(peer, name)))
            return

        address = network_of(peer.host)

        def judge(*, right: bool) -> None:
            if not wanted():
                return
            self._checks.judged(address, right=right)
            if user is None or not right or not self._is_unchanged(user):
                done(self._judged(peer, name, Verdict(None, REFUSED)))
                return
            self._remember(digest, user.password_hash)
            done(self._judged(peer, name, self._admitted(peer, name)))

        question = (digest, user)
        waiting = self._waiting.setdefault(question, [])
        waiting.append(_Waiting(judge, wanted))
        if len(waiting) > 1:
            return  # after a restart of the broker, clients with the same user and password come all at once

        def work() -> None:
            right = self._verify(user, password)
            better = self._better(user, password) if right and user is not None else None
            self._post(lambda: answer(better, right=right))

        def answer(better: PasswordHashes | None, *, right: bool) -> None:
            self._running -= 1
            self._next_checks()
            decide(right=right)
            if user is not None and better is not None:
                keep(self._access, self._record, user, better)

        def decide(*, right: bool) -> None:
            self._tell(self._waiting.pop(question), right=right)

        def still_wanted() -> bool:
            return any(each.wanted() for each in waiting)

        until = self._clock() + self._patience
        self._checks.put(address, Check(until, work, lambda: decide(right=False), still_wanted))
        self._next_checks()

    def _tell(self, waiting: list[_Waiting], *, right: bool) -> None:
        """Judge clients that waited for the same check, some in each turn."""
        for each in waiting[:_TOLD]:
            each.judge(right=right)
        rest = waiting[_TOLD:]
        if rest:
            self._post(lambda: self._tell(rest, right=right))

    def _prove(self, peer: Peer, proof: Proof, done: Callable[[Verdict], None], wanted: Callable[[], bool]) -> None:
        """Judge a proof of SCRAM.

        That takes microseconds, so guesses would be cheap. A wrong proof therefore takes its turn for a check of the
        length of a password's, and so does any proof from an address with a recent wrong login.
        """
        name, address = proof.user, network_of(peer.host)
        right = proof.fits() and self.scram.is_current(name, proof.keys)
        if right and not self._checks.suspects(address):
            done(self._judged(peer, name, self._admitted(peer, name)))
            return
        if not right:
            self._checks.judged(address, right=False)  # even if the client leaves before the answer

        def work() -> None:
            self._verify(None, "")
            self._post(answer)

        def answer() -> None:
            self._running -= 1
            self._next_checks()
            decide(right=right and self.scram.is_current(name, proof.keys))

        def decide(*, right: bool) -> None:
            if not wanted():
                return
            if right:
                self._checks.judged(address, right=True)
            done(self._judged(peer, name, self._admitted(peer, name) if right else Verdict(None, REFUSED)))

        until = self._clock() + self._patience
        self._checks.put(address, Check(until, work, lambda: decide(right=False), wanted))
        self._next_checks()

    def _check_token(
        self,
        tokens: TokenLogins,
        peer: Peer,
        token: str,
        done: Callable[[Verdict], None],
        wanted: Callable[[], bool],
        *,
        again: bool = False,
    ) -> None:
        """Judge a token. A wrong one takes its turn and its time like a wrong password.

        If its key is unknown, it is checked `again` when the keys have been read once more.
        """
        known = tokens.remembered(token)
        if known is not None:
            done(_token_judged(peer, self._granted(peer, known)))
            return
        address, check, version = network_of(peer.host), tokens.check(token), tokens.version

        def work() -> None:
            found = check()
            if isinstance(found, TokenRefused):
                self._verify(None, "")
            self._post(lambda: answer(found))

        def answer(found: Grant | TokenRefused) -> None:
            self._running -= 1
            self._next_checks()
            if not wanted():
                return
            if isinstance(found, Grant):
                self._checks.judged(address, right=True)
                tokens.remember(token, found, version)
                done(_token_judged(peer, self._granted(peer, found)))
            elif again or not tokens.await_keys(found, once_more):
                self._checks.judged(address, right=False)
                done(_token_judged(peer, Verdict(None, tokens.reason(found))))

        def once_more() -> None:
            if wanted():
                self._check_token(tokens, peer, token, done, wanted, again=True)

        def give_up() -> None:
            if wanted():
                done(_token_judged(peer, Verdict(None, "the check of the token took too long")))

        self._checks.put(address, Check(self._clock() + self._patience, work, give_up, wanted))
        self._next_checks()

    def _granted(self, peer: Peer, grant: Grant) -> Verdict:
        verdict = self._admitted(peer, grant.user)
        return Verdict(grant.user, grant=grant) if verdict.user is not None else verdict

    def _is_unchanged(self, user: User) -> bool:
        """Return whether the user still exists with the same password, since a check takes its time."""
        current = self._access.users.get(user.name)
        return current is not None and current.password_hash == user.password_hash

    def _next_checks(self) -> None:
        """Start checks up to the number that may run at the same time."""
        while self._running < _AT_ONCE:
            check = self._checks.next()
            if check is None:
                return
            self._running += 1
            self._executor.submit(check.work)

    def _verify(self, user: User | None, password: str) -> bool:
        """Check a password, on another thread. A user that is unknown or has no password takes the same time."""
        real = user.password_hash if user is not None else ""
        salted = parts(real)
        if salted is not None:
            algorithm, salt, digest = salted
            given = password.encode("utf-8", "surrogatepass")
            right = hmac.compare_digest(hashlib.new(algorithm, salt + given).digest(), digest)
            self._verify(None, password)  # so that it takes as long as any check
            return right
        try:
            self._hasher.verify(real or self._decoy, password)
        except (Argon2Error, InvalidHashError, UnicodeEncodeError):
            return False
        return bool(real)

    def _better(self, user: User, password: str) -> PasswordHashes | None:
        """Return what is to be stored of a correct password instead of the present hashes, on another thread: a hash
        that was imported from RabbitMQ is replaced, and missing keys of SCRAM are added. None if nothing has to be.
        """
        weak = parts(user.password_hash) is not None
        scram_hashes = self.scram.complete(user, password)
        if not weak and not scram_hashes:
            return None
        return PasswordHashes(self._hasher.hash(password) if weak else user.password_hash, scram_hashes)

    def _external(self, peer: Peer, credentials: Credentials) -> Verdict:
        name = peer.certificate_user
        if name is None:
            return Verdict(None, "EXTERNAL needs a client certificate")
        if credentials.authcid and credentials.authcid != name:
            return Verdict(None, "the certificate is another user's")
        if name not in self._access.users:
            return Verdict(None, "the certificate's user is not known here")
        return self._admitted(peer, name)

    def _anonymous(self, peer: Peer) -> Verdict:
        if self._anonymous_user not in self._access.users:
            return Verdict(None, "the user for clients without credentials does not exist")
        return self._admitted(peer, self._anonymous_user)

    def _admitted(self, peer: Peer, name: str) -> Verdict:
        if name == GUEST and self._guest_loopback_only and not peer.loopback:
            return Verdict(None, f"user '{GUEST}' can only connect via localhost")
        return Verdict(name)

    def _judged(self, peer: Peer, name: str, verdict: Verdict) -> Verdict:
        claimed = name or peer.certificate_user
        log_verdict(peer, f"user {claimed!r}", verdict, claimed)
        return verdict

    def _digest(self, name: str, password: str) -> bytes:
        secret = name.encode("utf-8", "surrogatepass"), password.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(b"%d:%b%b" % (len(secret[0]), *secret), key=self._key, digest_size=32).digest()

    def _remember(self, digest: bytes, password_hash: str) -> None:
        self._right[digest] = password_hash  # a changed password has another hash, which invalidates this entry
        if len(self._right) > _REMEMBERED:
            self._right.popitem(last=False)


def _is_bearer(peer: Peer, credentials: Credentials) -> bool:
    """Return whether the password is to be judged as a token. HTTP has a scheme of its own for tokens."""
    if credentials.mechanism == TOKEN:
        return True
    return not peer.is_request and credentials.password is not None and is_token(credentials.password)


def _token_judged(peer: Peer, verdict: Verdict) -> Verdict:
    log_verdict(peer, "a token", verdict)
    return verdict


def log_verdict(peer: Peer, who: str, verdict: Verdict, claimed: str | None = None) -> None:
    """Log a login, or that the one of `who`, with the `claimed` name, was refused."""
    fields = {"peer": peer, "user": verdict.user or claimed, "reason": verdict.reason or None}
    way = " over HTTP" if peer.is_request else ""
    if verdict.user is not None:
        level = logging.DEBUG if peer.is_request else logging.INFO
        _log.log(level, "user %r logged in%s from %s", verdict.user, way, peer, extra={"fields": fields})
    else:
        _log.warning("login of %s%s from %s refused: %s", who, way, peer, verdict.reason, extra={"fields": fields})


def decoy(hasher: PasswordHasher) -> str:
    """Return a hash that no password has. It is made up, since a real one would take as long as a check."""
    salt, digest = (b64encode(os.urandom(size)).decode().rstrip("=") for size in (hasher.salt_len, hasher.hash_len))
    cost = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2{hasher.type.name.lower()}$v={ARGON2_VERSION}${cost}${salt}${digest}"
