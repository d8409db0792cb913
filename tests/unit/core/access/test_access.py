"""Permission checks and changes of the rules. The error texts are those of RabbitMQ 3.10.8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.access.access import MOST_ACCESS_KEYS, Access, Kind, Right
from escrowmq.core.access.permissions import DefaultLimits, Permission, TopicPermission, User, Vhost
from escrowmq.core.conditions import BrokerError, Condition


@pytest.fixture
def access() -> Access:
    rules = Access()
    rules.add_user("u", "hash", ("administrator",))
    rules.add_vhost("/")
    rules.set_permission("u", "/", "^ok", r"^ok|amq\.default", "^ok$")
    return rules


def refusal(do: Callable[[], object]) -> tuple[Condition, str]:
    with pytest.raises(BrokerError) as refused:
        do()
    return refused.value.condition, refused.value.text


class TestNames:
    @pytest.mark.parametrize(
        ("kind", "name", "right"),
        [
            ("queue", "ok", "configure"),
            ("queue", "okay", "configure"),
            ("exchange", "ok", "read"),
            ("exchange", "", "write"),
            ("exchange", "amq.default", "write"),
        ],
    )
    def test_matching_names_are_allowed(self, access: Access, kind: Kind, name: str, right: Right) -> None:
        access.check("u", "/", kind, name, right)
        access.check("u", "/", kind, name, right)

    @pytest.mark.parametrize(
        ("kind", "name", "right", "text"),
        [
            ("queue", "q", "configure", "access to queue 'q' in vhost '/' refused for user 'u'"),
            ("exchange", "x", "configure", "access to exchange 'x' in vhost '/' refused for user 'u'"),
            ("queue", "okx", "read", "access to queue 'okx' in vhost '/' refused for user 'u'"),
            ("exchange", "", "read", "access to exchange 'amq.default' in vhost '/' refused for user 'u'"),
        ],
    )
    def test_other_names_are_refused_with_rabbitmqs_text(
        self, access: Access, kind: Kind, name: str, right: Right, text: str
    ) -> None:
        for _ in range(2):
            assert refusal(lambda: access.check("u", "/", kind, name, right)) == (Condition.ACCESS_REFUSED, text)

    def test_without_permissions_nothing_is_allowed(self, access: Access) -> None:
        access.add_vhost("v")
        for user, vhost in (("u", "v"), ("nobody", "/")):
            text = f"access to queue 'ok' in vhost '{vhost}' refused for user '{user}'"
            assert refusal(lambda: access.check(user, vhost, "queue", "ok", "read"))[1] == text  # noqa: B023

    def test_an_empty_pattern_allows_nothing(self, access: Access) -> None:
        access.set_permission("u", "/", "", "", "")
        for name in ("q", ""):
            assert refusal(lambda: access.check("u", "/", "exchange", name, "write"))  # noqa: B023

    def test_a_change_takes_effect_immediately(self, access: Access) -> None:
        access.check("u", "/", "queue", "ok", "read")
        version = access.version
        access.set_permission("u", "/", "^ok", "^ok", "^no")
        assert access.version > version
        assert refusal(lambda: access.check("u", "/", "queue", "ok", "read"))
        access.check("u", "/", "queue", "no", "read")
        access.clear_permission("u", "/")
        assert refusal(lambda: access.check("u", "/", "queue", "no", "read"))


class TestTopics:
    def test_without_topic_permissions_all_keys_are_allowed(self, access: Access) -> None:
        access.check_topic("u", "/", "amq.topic", "anything", "write")

    def test_patterns_are_matched_against_the_routing_key(self, access: Access) -> None:
        access.set_topic_permission("u", "/", "amq.topic", "^{username}-{vhost}", r"^{username}\.")
        access.check_topic("u", "/", "amq.topic", "u-/.k", "write")
        access.check_topic("u", "/", "amq.topic", "u.k", "read")
        access.check_topic("u", "/", "other", "x.k", "write")
        assert refusal(lambda: access.check_topic("u", "/", "amq.topic", "x.k", "write")) == (
            Condition.ACCESS_REFUSED,
            "access to topic 'x.k' in exchange 'amq.topic' in vhost '/' refused for user 'u'",
        )
        assert refusal(lambda: access.check_topic("u", "/", "amq.topic", "u-/", "read"))

    def test_a_username_in_a_pattern_is_taken_literally(self, access: Access) -> None:
        access.add_user(".*", "hash")
        access.set_topic_permission(".*", "/", "amq.topic", "^{username}$", "")
        access.check_topic(".*", "/", "amq.topic", ".*", "write")
        assert refusal(lambda: access.check_topic(".*", "/", "amq.topic", "x", "write"))

    def test_permissions_can_be_cleared_for_one_exchange_or_for_all(self, access: Access) -> None:
        one, two, three = (access.set_topic_permission("u", "/", name, "a", "b") for name in ("x", "y", "z"))
        assert access.clear_topic_permission("u", "/", "y") == (two,)
        assert access.clear_topic_permission("u", "/") == (one, three)
        assert access.clear_topic_permission("u", "/") == ()
        access.check_topic("u", "/", "x", "c", "write")


class TestVirtualHosts:
    def test_logging_in_requires_permissions_in_the_virtual_host(self, access: Access) -> None:
        access.check_vhost("u", "/")
        access.add_vhost("v")
        assert refusal(lambda: access.check_vhost("u", "v")) == (
            Condition.NOT_ALLOWED,
            "access to vhost 'v' refused for user 'u'",
        )
        assert refusal(lambda: access.check_vhost("u", "w")) == (Condition.NOT_ALLOWED, "vhost w not found")

    def test_removal(self, access: Access) -> None:
        access.set_topic_permission("u", "/", "x", "", "")
        access.add_vhost("v")
        kept = access.set_permission("u", "v", "", "", "")
        assert access.remove_vhost("/") == (
            Vhost("/"),
            Permission("u", "/", "^ok", r"^ok|amq\.default", "^ok$"),
            TopicPermission("u", "/", "x", "", ""),
        )
        assert list(access.entries()) == [access.user("u"), Vhost("v"), kept]


class TestUsers:
    def test_password_and_tags_can_be_changed(self, access: Access) -> None:
        assert access.user("u") == User("u", "hash", ("administrator",))
        assert access.set_password("u", "other") == User("u", "other", ("administrator",))
        assert access.set_tags("u", ()) == User("u", "other") == access.user("u")

    def test_removal(self, access: Access) -> None:
        access.add_user("v", "h")
        kept = access.set_permission("v", "/", "", "", "")
        removed = access.remove_user("u")
        assert removed == (
            User("u", "hash", ("administrator",)),
            Permission("u", "/", "^ok", r"^ok|amq\.default", "^ok$"),
        )
        assert list(access.entries()) == [User("v", "h"), Vhost("/"), kept]


@pytest.mark.parametrize(
    ("do", "condition", "text"),
    [
        (lambda a: a.add_user("u", "h"), Condition.PRECONDITION_FAILED, "user 'u' already exists"),
        (lambda a: a.add_vhost("/"), Condition.PRECONDITION_FAILED, "vhost '/' already exists"),
        (lambda a: a.add_user("", "h"), Condition.INVALID_ARGUMENT, "a user needs a name"),
        (lambda a: a.add_vhost(""), Condition.INVALID_ARGUMENT, "a vhost needs a name"),
        (lambda a: a.set_password("x", "h"), Condition.NOT_FOUND, "no such user 'x'"),
        (lambda a: a.set_tags("x", ()), Condition.NOT_FOUND, "no such user 'x'"),
        (lambda a: a.remove_user("x"), Condition.NOT_FOUND, "no such user 'x'"),
        (lambda a: a.remove_vhost("v"), Condition.NOT_FOUND, "no such vhost 'v'"),
        (lambda a: a.set_permission("x", "/", "", "", ""), Condition.NOT_FOUND, "no such user 'x'"),
        (lambda a: a.set_permission("u", "v", "", "", ""), Condition.NOT_FOUND, "no such vhost 'v'"),
        (lambda a: a.clear_permission("x", "/"), Condition.NOT_FOUND, "no such user 'x'"),
        (lambda a: a.set_topic_permission("u", "v", "x", "", ""), Condition.NOT_FOUND, "no such vhost 'v'"),
        (lambda a: a.clear_topic_permission("x", "/"), Condition.NOT_FOUND, "no such user 'x'"),
    ],
)
def test_invalid_changes_are_refused(
    access: Access, do: Callable[[Access], object], condition: Condition, text: str
) -> None:
    before = list(access.entries())
    assert refusal(lambda: do(access)) == (condition, text)
    assert list(access.entries()) == before


@pytest.mark.parametrize("which", range(3))
def test_bad_patterns_change_nothing(access: Access, which: int) -> None:
    patterns = ["a", "b", "c"]
    patterns[which] = "("
    before = list(access.entries())
    assert refusal(lambda: access.set_permission("u", "/", *patterns))[0] is Condition.INVALID_ARGUMENT
    if which:
        assert (
            refusal(lambda: access.set_topic_permission("u", "/", "x", *patterns[1:]))[0] is Condition.INVALID_ARGUMENT
        )
    assert list(access.entries()) == before


def test_clearing_missing_permissions_does_nothing(access: Access) -> None:
    access.add_vhost("v")
    assert access.clear_permission("u", "v") == ()
    assert access.clear_topic_permission("u", "v") == ()


def test_entries_rebuild_the_rules(access: Access) -> None:
    access.set_topic_permission("u", "/", "x", "a", "b")
    copy = Access()
    for entry in access.entries():
        copy.put(entry)
    assert list(copy.entries()) == list(access.entries())
    copy.check("u", "/", "queue", "ok", "read")
    for entry in access.entries():
        copy.drop(entry)
        copy.drop(entry)
    assert not list(copy.entries())
    assert refusal(lambda: copy.check("u", "/", "queue", "ok", "read"))


@pytest.mark.rule("SEC-1")
def test_a_pattern_from_an_older_journal_that_is_not_supported_allows_nothing(access: Access) -> None:
    access.put(User("old", ""))
    access.put(Permission("old", "/", ".*", "^(?!secret)", ".*"))
    assert access.allowed("old", "/", "q", "read")
    assert not access.allowed("old", "/", "q", "write")


@pytest.mark.rule("FAIR-3")
def test_users_and_virtual_hosts_without_limits_have_the_default_ones(access: Access) -> None:
    access.add_user("own", "hash")
    access.add_vhost("own")
    access.set_user_limits("own", 7, 7)
    access.set_vhost_limits("own", 7, 7)
    access.defaults = DefaultLimits(1, 2, 3, 4)
    access.check_connections("u", 0, "/", 2)
    access.check_channels("u", 1)
    access.check_queues("/", "q", 3)
    condition, text = refusal(lambda: access.check_connections("u", 1, "/", 0))
    assert (condition, "user connection limit (1)" in text) == (Condition.NOT_ALLOWED, True)
    condition, text = refusal(lambda: access.check_connections("u", 0, "/", 3))
    assert (condition, "connection limit (3)" in text) == (Condition.NOT_ALLOWED, True)
    assert "(2)" in refusal(lambda: access.check_channels("u", 2))[1]
    assert "(4)" in refusal(lambda: access.check_queues("/", "q", 4))[1]
    access.check_connections("own", 6, "own", 6)
    access.check_channels("own", 6)
    access.check_queues("own", "q", 6)


class TestAccessKeys:
    def test_a_key_names_one_user_until_it_is_removed(self, access: Access) -> None:
        access.add_user("owner", "")
        access.add_user("other", "")
        access.add_access_key("owner", "key")
        assert access.user_of_key("key") == "owner"
        with pytest.raises(BrokerError) as caught:
            access.add_access_key("other", "key")
        assert caught.value.condition is Condition.PRECONDITION_FAILED
        access.remove_access_key("owner", "key")
        assert access.user_of_key("key") is None
        with pytest.raises(BrokerError):
            access.remove_access_key("owner", "key")

    def test_a_key_ends_with_its_user(self, access: Access) -> None:
        access.add_user("owner", "")
        access.add_access_key("owner", "key")
        access.remove_user("owner")
        assert access.user_of_key("key") is None

    @pytest.mark.rule("FAIR-3")
    def test_the_keys_of_a_user_are_bounded(self, access: Access) -> None:
        access.add_user("owner", "")
        for i in range(MOST_ACCESS_KEYS):
            access.add_access_key("owner", str(i))
        with pytest.raises(BrokerError) as caught:
            access.add_access_key("owner", "more")
        assert caught.value.condition is Condition.LIMIT_EXCEEDED
