"""What operators change on the console: each action is one operation of the broker, with a form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.writing import parsed

LONGEST_REASON: Final = 1000
AUDIT: Final = "job audit"
BACKUP: Final = "job backup"
"""Commands that the HTTP process starts itself; no operations of the broker."""


class FormRefused(Exception):  # noqa: N818 - named for what happened
    """A form is incomplete. The text is for the operator."""


class Action(NamedTuple):
    """A change. `fields` are the arguments of its operation; `typed` is the one whose value has to be typed again; with
    `reasoned`, a reason has to be given. `done` is the text that follows, with the fields and `result` in braces.
    """

    operation: str
    fields: tuple[str, ...]
    done: str
    typed: str = ""
    reasoned: bool = False
    logged: bool = True


_POLICY: Final = ("vhost", "name", "pattern", "definition", "priority", "apply_to")
ACTIONS: Final[Mapping[str, Action]] = {
    "branch-commit": Action("tx.commit", ("xid",), "Branch {xid} was committed.", "xid", reasoned=True),
    "branch-rollback": Action("tx.rollback", ("xid",), "Branch {xid} was rolled back.", "xid", reasoned=True),
    "branch-forget": Action("tx.forget", ("xid",), "Branch {xid} was forgotten.", "xid", reasoned=True),
    "half-commit": Action(
        "half.commit", ("vhost", "transaction"), "The half message was committed.", "transaction", reasoned=True
    ),
    "half-drop": Action(
        "half.drop", ("vhost", "transaction"), "The half message was dropped.", "transaction", reasoned=True
    ),
    "half-resume": Action("half.resume", ("vhost", "transaction"), "The half message is checked again.", reasoned=True),
    "link-release": Action(
        "link.release",
        ("vhost", "container", "link"),
        "Link {link} has returned {messages} to their queues.",
        reasoned=True,
    ),
    "link-expire": Action(
        "link.expire", ("vhost", "container", "link", "role"), "Link {link} was ended.", "link", reasoned=True
    ),
    "hold-release": Action(
        "hold.release", ("vhost", "queue", "group"), "Queue {queue} has {messages} back.", reasoned=True
    ),
    "queue-purge": Action("queue.purge", ("vhost", "name"), "Queue {name} was purged.", "name"),
    "queue-delete": Action("queue.delete", ("vhost", "name"), "Queue {name} was deleted.", "name"),
    "queue-move": Action(
        "message.move", ("vhost", "queue", "destination", "count"), "Moved to {destination}: {messages}."
    ),
    "message-redrive": Action(
        "message.move",
        ("vhost", "queue", "destination", "position", "number"),
        "The message was moved to {destination}.",
    ),
    "message-publish": Action(
        "message.publish",
        ("vhost", "exchange", "routing_key", "payload", "properties"),
        "The message was published{result}.",
    ),
    "topic-delete": Action("topic.delete", ("vhost", "name"), "Topic {name} was deleted.", "name"),
    "group-reset": Action(
        "group.reset",
        ("vhost", "name", "topic", "to"),
        "The progress of group {name} in topic {topic} was set to {to}.",
        "name",
    ),
    "group-delete": Action("group.delete", ("vhost", "name"), "Group {name} was deleted.", "name"),
    "connection-close": Action("connection.close", ("peer", "reason"), "The connection from {peer} was closed."),
    "journal-snapshot": Action("journal.snapshot", (), "A snapshot was taken.", logged=False),
    "journal-compact": Action("journal.compact", (), "The journal was compacted.", logged=False),
    "audit-start": Action(AUDIT, (), "The audit was started."),
    "backup-start": Action(BACKUP, (), "The backup was started."),
    "user-add": Action("user.add", ("name", "password", "tags"), "User {name} was added."),
    "user-tags": Action("user.tags", ("name", "tags"), "User {name} has new tags."),
    "user-password": Action("user.password", ("name", "password"), "User {name} has a new password."),
    "user-delete": Action("user.delete", ("name",), "User {name} was deleted.", "name"),
    "vhost-add": Action("vhost.add", ("name",), "Virtual host {name} was added."),
    "vhost-delete": Action("vhost.delete", ("name",), "Virtual host {name} was deleted.", "name"),
    "permission-set": Action(
        "permission.set", ("user", "vhost", "configure", "write", "read"), "User {user} has permissions in {vhost}."
    ),
    "policy-set": Action("policy.set", _POLICY, "Policy {name} of virtual host {vhost} was set."),
    "policy-clear": Action("policy.clear", ("vhost", "name"), "Policy {name} was removed.", "name"),
    "operator-policy-set": Action(
        "operator_policy.set", _POLICY, "Operator policy {name} of virtual host {vhost} was set."
    ),
    "operator-policy-clear": Action(
        "operator_policy.clear", ("vhost", "name"), "Operator policy {name} was removed.", "name"
    ),
    "permission-clear": Action("permission.clear", ("user", "vhost"), "User {user} has no permissions in {vhost}."),
}
"""By name, which is the last part of the path to which the form is sent."""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FormRefused(f"nothing was done: {text!r} is not a number")
    return int(text)


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise FormRefused(f"nothing was done: {text!r} is not a position")
    return int(text)


def _priority(text: str) -> int:
    negative = text.startswith("-")
    return -_count(text[1:]) if negative else _count(text)


def _definition(text: str) -> dict[str, Any]:
    try:
        return _object(text)
    except FormRefused as error:
        example = '{"max-length": 10000}'
        raise FormRefused(f"nothing was done: the definition must be a JSON object, such as {example}") from error


def _object(text: str) -> dict[str, Any]:
    try:
        found = parsed(text.encode())
    except BadQuery:
        found = None
    if not isinstance(found, dict):
        raise FormRefused('nothing was done: the properties must be a JSON object, such as {"delivery_mode": 2}')
    return found


_SHAPED: Final[Mapping[str, Callable[[str], Any]]] = {
    "tags": lambda text: [tag for tag in text.replace(",", " ").split() if tag],
    "count": _count,
    "number": _position,
    "position": _position,
    "properties": _object,
    "definition": _definition,
    "priority": _priority,
}
"""Arguments that are not texts."""


def arguments_of(action: Action, form: Mapping[str, str], asking: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the operation that a form asks for; `asking` says in whose name. Raises FormRefused."""
    missing = [name for name in action.fields if name not in form]
    if missing:
        raise FormRefused(f"the form has no field {missing[0]}")
    if action.typed and form.get("typed", "").strip() != form[action.typed]:
        raise FormRefused(f"nothing was done: the {action.typed} that was typed is not {form[action.typed]}")
    reason = form.get("why", "").strip()
    if action.reasoned and not 1 <= len(reason) <= LONGEST_REASON:
        raise FormRefused(f"nothing was done: a reason of 1 to {LONGEST_REASON} characters is required")
    arguments = {name: _SHAPED.get(name, str)(form[name]) for name in action.fields}
    if action.logged:
        arguments |= asking
        if reason:
            arguments["why"] = reason
    return arguments


def outcome_of(action: Action, form: Mapping[str, str], result: Any) -> str:
    """Return the text that tells an operator what was done."""
    if isinstance(result, bool):
        result = ", and reached a queue" if result else ", but reached no queue"
    messages = f"{result:,} message{'s' * (result != 1)}" if isinstance(result, int) else ""
    return action.done.format_map({**form, "result": result, "messages": messages})
