"""Logins: verdicts, remembered passwords, and log lines."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import VerifyMismatchError

from escrowmq.core.access.access import Access
from escrowmq.core.access.imported import imported
from escrowmq.core.access.permissions import User
from escrowmq.server.auth import REFUSED, Authenticator, decoy, log_verdict
from escrowmq.server.passwords import Passwords
from escrowmq.server.scram import ScramUsers
from escrowmq.server.secret_keys import SecretKeys
from escrowmq.server.tokens.logins import TokenLogins
from escrowmq.wire.endpoint import Peer, Verdict
from escrowmq.wire.sasl import TOKEN, Credentials
from escrowmq.wire.scram.client import ClientExchange
from escrowmq.wire.scram.server import Proof, ServerExchange
from tests.tokens import key_set, token
from tests.unit.server.tokens.test_cache import Scene
from tests.unit.server.tokens.test_verifier import RULES

FAST = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
LOCAL = Peer("127.0.0.1", 1, loopback=True)
REMOTE = Peer("10.0.0.1", 1)


class Later(Executor):
    """An executor whose work is done on the test's request."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.work.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> int:
        work, self.work = self.work, []
        for each in work:
            each()
        return len(work)


class Desk:
    """An authenticator with users alice (secret), guest (guest) and eve, who has no password."""

    def __init__(
        self, *, guest_loopback_only: bool = True, anonymous_user: str = "", tokens: TokenLogins | None = None
    ) -> None:
        self.access = Access()
        self.passwords = Passwords(("SCRAM-SHA-256",), 4096, FAST)
        self.recorded: list[User] = []
        for name in ("alice", "guest"):
            self.access.add_user(name, FAST.hash("secret" if name == "alice" else name))
        self.access.add_user("eve", "")
        self.later = Later()
        self.verdicts: list[Verdict] = []
        self.now = 0.0
        self.posted: list[Callable[[], None]] | None = None  # calls to a later turn; None: they are done at once
        self.authenticator = Authenticator(
            self.access,
            self.later,
            lambda call: call() if self.posted is None else self.posted.append(call),
            ScramUsers(self.access, self.passwords, b"key"),
            self.recorded.append,
            SecretKeys(Path()),
            tokens,
            guest_loopback_only=guest_loopback_only,
            anonymous_user=anonymous_user,
            hasher=FAST,
            clock=lambda: self.now,
        )

    def ask(self, name: str, password: str | None, peer: Peer = LOCAL, mechanism: str = "PLAIN") -> None:
        self.authenticator.authenticate(peer, Credentials(mechanism, name, password), self.verdicts.append)

    def prove(self, name: str, password: str, peer: Peer = LOCAL, *, stays: bool = True) -> None:
        """Log in by SCRAM, as a client that disconnects before the answer unless it `stays`."""
        client = ClientExchange("SCRAM-SHA-256", name, password, "nonce")
        server = ServerExchange(lambda user: self.authenticator.scram.challenge("SCRAM-SHA-256", user))
        challenge = server.step(client.first())
        assert isinstance(challenge, bytes)
        proof = server.step(client.final(challenge))
        assert isinstance(proof, Proof)
        credentials = Credentials("SCRAM-SHA-256", proof.user, proof=proof)
        self.authenticator.authenticate(peer, credentials, self.verdicts.append, lambda: stays)

    def login(self, name: str, password: str | None, peer: Peer = LOCAL, mechanism: str = "PLAIN") -> Verdict:
        self.ask(name, password, peer, mechanism)
        self.later.run()
        return self.verdicts.pop()


def test_the_right_password_gets_in_and_is_checked_off_the_loop() -> None:
    desk = Desk()
    desk.ask("alice", "secret")
    assert not desk.verdicts
    desk.later.run()
    assert desk.verdicts == [Verdict("alice")]


@pytest.mark.parametrize(
    ("name", "password"), [("alice", "Secret"), ("bob", "secret"), ("eve", ""), ("eve", "x"), ("alice", "\udcff")]
)
def test_others_stay_out_after_the_same_work(name: str, password: str) -> None:
    desk = Desk()
    desk.ask(name, password)
    assert desk.later.run() == 1
    assert desk.verdicts[0].user is None
    assert desk.verdicts[0].reason == "user or password is wrong"


def test_the_hash_for_unknown_users_is_a_proper_one_that_nobody_has() -> None:
    real = PasswordHasher(time_cost=3, memory_cost=64, parallelism=2)
    made_up = decoy(real)
    assert len(made_up) == len(real.hash("secret"))
    assert extract_parameters(made_up) == extract_parameters(real.hash("secret"))
    with pytest.raises(VerifyMismatchError):
        real.verify(made_up, "secret")
    assert made_up != decoy(real)


def test_a_login_that_was_right_is_remembered() -> None:
    desk = Desk()
    desk.login("alice", "secret")
    desk.ask("alice", "secret")
    assert desk.verdicts == [Verdict("alice")]
    assert not desk.later.work


def test_clients_that_come_at_once_share_one_check() -> None:
    desk = Desk()
    for _ in range(5):
        desk.ask("alice", "secret")
        desk.ask("alice", "wrong")
    assert desk.later.run() == 2
    assert [verdict.user for verdict in desk.verdicts] == ["alice"] * 5 + [None] * 5


def test_a_login_that_was_wrong_is_not() -> None:
    desk = Desk()
    desk.login("alice", "wrong")
    desk.ask("alice", "wrong")
    assert not desk.verdicts


@pytest.mark.parametrize("change", ["password", "delete", "replace"])
def test_a_remembered_password_is_void_once_the_user_has_changed(change: str) -> None:
    desk = Desk()
    desk.login("alice", "secret")
    match change:
        case "password":
            desk.access.set_password("alice", FAST.hash("new"))
        case "delete":
            desk.access.remove_user("alice")
        case "replace":
            desk.access.remove_user("alice")
            desk.access.add_user("alice", FAST.hash("new"))
    assert desk.login("alice", "secret").user is None


def test_a_change_while_the_password_is_checked_counts() -> None:
    desk = Desk()
    desk.ask("alice", "secret")
    desk.access.set_password("alice", FAST.hash("new"))
    desk.later.run()
    assert desk.verdicts[0].user is None


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("password", ["wrong", "secret"])
def test_clients_that_wait_for_the_same_check_learn_of_it_some_at_a_time(password: str) -> None:
    desk = Desk()
    for _ in range(100):
        desk.ask("alice", password)
    desk.posted = []
    assert desk.later.run() == 1
    told = []
    while desk.posted:
        before = len(desk.verdicts)
        calls, desk.posted = desk.posted, []
        for call in calls:
            call()
        told.append(len(desk.verdicts) - before)
    assert max(told) == 16
    assert desk.verdicts == 100 * [Verdict("alice") if password == "secret" else Verdict(None, REFUSED)]


def test_names_and_passwords_do_not_run_together() -> None:
    desk = Desk()
    desk.access.add_user("alices", FAST.hash("ecret"))
    desk.login("alices", "ecret")
    desk.login("alice", "secret")
    assert desk.login("alic", "esecret").user is None


@pytest.mark.parametrize(("peer", "user"), [(LOCAL, "guest"), (REMOTE, None)])
def test_guest_may_log_in_from_this_machine_only(peer: Peer, user: str | None) -> None:
    assert Desk().login("guest", "guest", peer).user == user
    desk = Desk()
    desk.login("guest", "guest", LOCAL)
    assert desk.login("guest", "guest", peer).user == user, "remembered logins too"


def test_guest_may_be_let_in_from_anywhere() -> None:
    assert Desk(guest_loopback_only=False).login("guest", "guest", REMOTE).user == "guest"


@pytest.mark.parametrize(
    ("certificate", "authcid", "user"),
    [
        ("alice", "", "alice"),
        ("alice", "alice", "alice"),
        ("alice", "guest", None),
        ("mallory", "", None),
        (None, "alice", None),
    ],
)
def test_external_takes_the_name_of_the_certificate(certificate: str | None, authcid: str, user: str | None) -> None:
    peer = Peer("10.0.0.1", 1, tls=True, certificate_user=certificate)
    verdict = Desk().login(authcid, None, peer, "EXTERNAL")
    assert verdict.user == user
    assert bool(verdict.reason) == (user is None)


def test_a_mechanism_without_proof_proves_nothing() -> None:
    assert Desk().login("anonymous", None, mechanism="ANONYMOUS").user is None


@pytest.mark.parametrize(
    ("configured", "peer", "user"),
    [("eve", REMOTE, "eve"), ("guest", LOCAL, "guest"), ("guest", REMOTE, None), ("nobody", LOCAL, None)],
)
def test_anonymous_clients_are_the_configured_user(configured: str, peer: Peer, user: str | None) -> None:
    desk = Desk(anonymous_user=configured)
    assert desk.login("anonymous", None, peer, "ANONYMOUS").user == user
    assert desk.login("eve", "", peer).user is None


def test_refusals_are_logged_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        desk = Desk()
        desk.login("alice", "hunter2")
        desk.login("no\nbody", "hunter2")
        desk.login("alice", "secret")
    assert "login of user 'alice' from 127.0.0.1:1 refused" in caplog.text
    users = {record.__dict__["fields"]["user"] for record in caplog.records if "refused" in record.message}
    assert "alice" in users
    assert "'no\\nbody'" in caplog.text
    assert "hunter2" not in caplog.text
    assert "secret" not in caplog.text


def test_the_verdict_on_an_access_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_verdict(LOCAL, "", Verdict("alice"))
        log_verdict(LOCAL, "access key 'k'", Verdict(None, "its signature is wrong"))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "user 'alice' logged in from 127.0.0.1:1"),
        ("WARNING", "login of access key 'k' from 127.0.0.1:1 refused: its signature is wrong"),
    ]


def test_a_host_that_guesses_passwords_does_not_delay_other_hosts() -> None:
    desk = Desk()
    for i in range(100):
        desk.ask("alice", f"guess {i}", REMOTE)
    desk.ask("alice", "secret")
    for _ in range(3):
        assert desk.later.run() <= 2
    assert Verdict("alice") in desk.verdicts
    while desk.later.run():
        pass
    assert [verdict.user for verdict in desk.verdicts].count(None) == 100


def test_a_password_is_not_checked_after_its_client_was_disconnected() -> None:
    desk = Desk()
    for i in range(100):
        desk.ask("alice", f"guess {i}")
    desk.now += 11
    assert desk.later.run() == 2
    assert len(desk.verdicts) == 100
    assert desk.login("alice", "secret") == Verdict("alice")


@pytest.mark.rule("FAIR-3", "SEC-4")
def test_a_right_first_login_gets_through_a_flood_of_wrong_ones_from_many_addresses() -> None:
    desk = Desk()
    addresses = [Peer(f"10.1.{i // 250}.{i % 250}", 1) for i in range(1000)]
    for peer in addresses:  # each has guessed once
        desk.ask("alice", f"guess {peer.host}", peer)
    while desk.later.run():
        pass
    for n in range(5):
        for peer in addresses:
            desk.ask("alice", f"guess {n} {peer.host}", peer)
    desk.verdicts.clear()
    desk.ask("alice", "secret", REMOTE)
    for _ in range(4):
        desk.later.run()
    assert Verdict("alice") in desk.verdicts


def test_a_disconnected_client_is_neither_checked_nor_answered() -> None:
    desk = Desk()
    there = [True]
    for i in range(5):
        credentials = Credentials("PLAIN", "alice", f"guess {i}")
        desk.authenticator.authenticate(LOCAL, credentials, desk.verdicts.append, lambda: there[0])
    there[0] = False
    assert desk.later.run() == 2, "those that had begun"
    assert desk.later.run() == 0
    assert not desk.verdicts


class ScramDesk(Desk):
    """All users have keys of SCRAM."""

    def __init__(self) -> None:
        super().__init__()
        for name, password in (("alice", "secret"), ("guest", "guest")):
            self.access.set_password(name, *self.passwords.hashes(password))


def test_a_right_proof_of_scram_is_accepted_at_once() -> None:
    desk = ScramDesk()
    desk.prove("alice", "secret")
    assert desk.verdicts == [Verdict("alice")]
    assert not desk.later.work


@pytest.mark.parametrize("name", ["alice", "nobody", "eve"])
def test_a_wrong_proof_of_scram_costs_as_much_as_a_wrong_password(name: str) -> None:
    desk = ScramDesk()
    desk.prove(name, "wrong")
    assert not desk.verdicts
    assert desk.later.run() == 1
    assert desk.verdicts == [Verdict(None, "user or password is wrong")]


@pytest.mark.rule("FAIR-3")
def test_addresses_that_guess_by_scram_wait_for_every_answer() -> None:
    desk = ScramDesk()
    desk.prove("alice", "wrong", REMOTE, stays=False)
    desk.prove("alice", "secret", REMOTE)
    assert not desk.verdicts, "whether a guess was right is not told at once"
    desk.prove("alice", "secret", LOCAL)
    assert desk.verdicts == [Verdict("alice")], "other addresses do not wait"
    while desk.later.run():
        pass
    assert desk.verdicts == [Verdict("alice")] * 2
    desk.prove("alice", "secret", REMOTE)
    assert len(desk.verdicts) == 3, "a right login ends the suspicion"


def test_wrong_logins_with_plain_and_with_scram_count_alike() -> None:
    desk = ScramDesk()
    desk.login("alice", "wrong", REMOTE)
    desk.prove("alice", "secret", REMOTE)
    assert not desk.verdicts
    desk.later.run()
    assert desk.verdicts == [Verdict("alice")]


def test_a_proof_is_void_once_the_password_has_changed() -> None:
    desk = ScramDesk()
    desk.login("alice", "wrong")
    desk.prove("alice", "secret")
    desk.access.set_password("alice", *desk.passwords.hashes("new"))
    desk.later.run()
    assert desk.verdicts[0].user is None


def test_guest_is_bound_to_this_machine_with_scram_too() -> None:
    desk = ScramDesk()
    desk.prove("guest", "guest", REMOTE)
    desk.prove("guest", "guest", LOCAL)
    assert [verdict.user for verdict in desk.verdicts] == [None, "guest"]


def test_the_keys_of_scram_are_added_at_the_first_login_with_a_password() -> None:
    desk = Desk()
    assert not desk.authenticator.scram.offers("SCRAM-SHA-256")
    desk.login("alice", "wrong")
    assert not desk.recorded
    desk.login("alice", "secret")
    assert [user.name for user in desk.recorded] == ["alice"]
    desk.prove("alice", "secret")
    assert desk.verdicts.pop() == Verdict("alice")
    desk.login("guest", "guest")
    assert desk.authenticator.scram.offers("SCRAM-SHA-256")


def test_keys_are_not_added_twice() -> None:
    desk = ScramDesk()
    desk.login("alice", "secret")
    assert not desk.recorded


def test_keys_of_a_password_that_was_changed_meanwhile_are_not_kept() -> None:
    desk = Desk()
    desk.ask("alice", "secret")
    desk.access.set_password("alice", FAST.hash("new"))
    desk.later.run()
    assert not desk.recorded
    assert not desk.access.users["alice"].scram_hashes


def test_a_login_is_right_although_keys_are_added_while_it_is_checked() -> None:
    desk = Desk()
    desk.ask("alice", "secret")
    hashes = desk.access.users["alice"].password_hash
    desk.access.set_password("alice", hashes, desk.passwords.scram_hashes("secret"))
    desk.later.run()
    assert desk.verdicts == [Verdict("alice")]


def test_a_login_over_http_is_logged_as_such(caplog: pytest.LogCaptureFixture) -> None:
    log_verdict(Peer("10.0.0.1", 5, is_request=True), "user 'eve'", Verdict(None, "wrong"))
    log_verdict(Peer("10.0.0.1", 0, is_request=True), "user 'eve'", Verdict(None, "wrong"))
    log_verdict(Peer("10.0.0.1", 5), "user 'eve'", Verdict(None, "wrong"))
    assert [record.getMessage() for record in caplog.records] == [
        "login of user 'eve' over HTTP from 10.0.0.1:5 refused: wrong",
        "login of user 'eve' over HTTP from 10.0.0.1 refused: wrong",
        "login of user 'eve' from 10.0.0.1:5 refused: wrong",
    ]


def test_scram_leaves_no_secrets_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        desk = Desk()
        desk.authenticator.scram.warn()
        desk.login("alice", "secret")
        desk.prove("alice", "secret")
        desk.prove("alice", "hunter2")
        desk.later.run()
    assert "SCRAM-SHA-256 is not offered yet, because these users have no keys for it: 'alice', 'guest'" in caplog.text
    assert "$" not in caplog.text
    assert "hunter2" not in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.rule("SEC-1")
def test_a_hash_from_rabbitmq_is_verified_and_replaced_at_the_first_login() -> None:
    desk = Desk()
    digest = hashlib.sha256(b"salt" + b"carrot").digest()
    imported_hash = imported(base64.b64encode(b"salt" + digest).decode())
    desk.access.set_password("alice", imported_hash)
    desk.ask("alice", "potato")
    desk.later.run()
    assert desk.access.users["alice"].password_hash == imported_hash
    for _ in range(2):
        desk.ask("alice", "carrot")
        desk.later.run()
    assert [verdict.user for verdict in desk.verdicts] == [None, "alice", "alice"]
    user = desk.access.users["alice"]
    assert user.password_hash.startswith("$argon2id$")
    assert user.scram_hashes
    assert desk.recorded == [user]


class TestTokens:
    """Logins by a token in place of the password."""

    def desk(self, **options: Any) -> tuple[Desk, Scene]:
        """Return a desk that accepts tokens of the key `one`, and where its keys come from."""
        scene = Scene()
        scene.cache.refresh()
        scene.run()
        return Desk(tokens=TokenLogins(scene.cache, RULES, lambda: scene.now), **options), scene

    def test_the_user_is_that_of_the_token_which_need_not_be_listed(self) -> None:
        desk, _ = self.desk()
        for name in ("", "alice", "guest"):
            verdict = desk.login(name, token(sub="service-7"))
            assert verdict.user == "service-7"
            assert verdict.grant is not None
            assert verdict.grant.scopes == ("read:*/*", "write:*/*", "configure:*/*")

    def test_a_token_is_checked_off_the_loop_and_once_only(self) -> None:
        desk, _ = self.desk()
        desk.ask("", token(exp=1000))
        assert desk.verdicts == []
        assert desk.later.run() == 1
        desk.ask("", token(exp=1000))
        assert [verdict.user for verdict in desk.verdicts] == ["alice", "alice"]

    def test_an_expired_token_is_not_remembered(self) -> None:
        desk, scene = self.desk()
        assert desk.login("", token(exp=1000)).user == "alice"
        scene.now = 1005
        assert desk.login("", token(exp=1000)) == Verdict(None, "the token has expired")

    def test_without_an_issuer_a_token_is_a_wrong_password(self) -> None:
        desk = Desk()
        assert desk.login("alice", token()) == Verdict(None, REFUSED)
        assert desk.login("", token(), mechanism=TOKEN).reason == "tokens are not accepted (tokens.issuer)"

    def test_passwords_are_as_before(self) -> None:
        desk, _ = self.desk()
        assert desk.login("alice", "secret") == Verdict("alice")
        assert desk.login("alice", "a.b.c") == Verdict(None, REFUSED)
        assert desk.login("", "secret") == Verdict(None, REFUSED)

    def test_over_http_a_token_is_no_password(self) -> None:
        """A session of the console keeps no scopes."""
        desk, _ = self.desk()
        assert desk.login("alice", token(), Peer("10.0.0.1", 1, is_request=True)) == Verdict(None, REFUSED)
        verdict = desk.login("", token(), Peer("10.0.0.1", 1, is_request=True), TOKEN)
        assert verdict.user == "alice"

    def test_a_user_guest_of_a_token_comes_from_this_machine_only_as_well(self) -> None:
        desk, _ = self.desk()
        assert desk.login("", token(sub="guest"), REMOTE).user is None
        assert desk.login("", token(sub="guest"), LOCAL).user == "guest"
        assert desk.login("", token(sub="guest"), REMOTE).user is None, "also if it is remembered"

    @pytest.mark.rule("SEC-4")
    def test_a_wrong_token_takes_the_time_of_a_wrong_password_and_makes_suspect(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk, _ = self.desk()
        hashed: list[str] = []
        monkeypatch.setattr(desk.authenticator, "_verify", lambda _, password: hashed.append(password))
        assert desk.login("", token(aud="other"), REMOTE).reason == "the token is for another audience"
        assert hashed == [""]
        assert desk.authenticator._checks.suspects("10.0.0.1")
        assert desk.login("", token(), REMOTE).user == "alice"
        assert not desk.authenticator._checks.suspects("10.0.0.1")
        assert hashed == [""]

    def test_an_unknown_key_is_waited_for(self) -> None:
        desk, scene = self.desk()
        scene.body = key_set("one", "two")
        desk.ask("", token("two"))
        desk.later.run()
        assert desk.verdicts == []
        scene.run()
        desk.later.run()
        assert [verdict.user for verdict in desk.verdicts] == ["alice"]

    def test_an_unknown_key_is_waited_for_once(self) -> None:
        desk, scene = self.desk()
        desk.ask("", token("two"))
        for _ in range(3):
            desk.later.run()
            scene.run()
        assert desk.verdicts == [Verdict(None, "the token's key is not one of the issuer's")]
        assert desk.login("", token("two")).user is None
        assert scene.run() == 0, "the keys are not read for each token"

    def test_a_client_that_has_left_is_not_judged(self) -> None:
        desk, scene = self.desk()
        here = [True]
        credentials = Credentials(TOKEN, "", token("two"))
        desk.authenticator.authenticate(LOCAL, credentials, desk.verdicts.append, lambda: here[0])
        desk.later.run()
        here[0] = False
        scene.run()
        assert (desk.later.run(), desk.verdicts) == (0, [])

    def test_a_token_that_waits_for_too_long_is_refused(self) -> None:
        desk, _ = self.desk()
        for number in range(3):
            desk.ask("", token(sub=str(number)))
        desk.now += 11
        desk.later.run()
        assert Verdict(None, "the check of the token took too long") in desk.verdicts
        assert len(desk.verdicts) == 3

    def test_the_log_never_has_a_token(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        desk, _ = self.desk()
        caplog.clear()
        right, wrong = token(), token(aud="other")
        desk.login("", right)
        desk.login("", wrong)
        assert caplog.messages == [
            "user 'alice' logged in from 127.0.0.1:1",
            "login of a token from 127.0.0.1:1 refused: the token is for another audience",
        ]
        logged = " ".join(str(record.__dict__) for record in caplog.records)
        assert not any(part in logged for given in (right, wrong) for part in given.split("."))
