"""Random histories of policies: queues have the messages that a plain model expects, also after restarts.

The model shares no code with the broker: it finds the policy that counts with the regular expressions of Python, and
applies it to a list of messages. The audit judges each history, too.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, Final

import pytest

from escrowmq.core.policies.policy import Policy
from tests.pipeline.direct import audited, export
from tests.unit.core.site import Site

QUEUES: Final[dict[str, dict[str, Any]]] = {
    "a.plain": {},
    "a.long": {"x-max-length": 12},
    "b.brief": {"x-message-ttl": 400},
    "b.refusing": {"x-max-length": 9, "x-overflow": "reject-publish"},
    "b.large": {"x-max-length-bytes": 90},
}
PATTERNS: Final = ("", "^a", "^b", "l", "brief$", "none")
LIMITS: Final = ("max-length", "max-length-bytes", "message-ttl")


class Model:
    """The messages of each queue, each with the time of its arrival, and the policies by kind and name."""

    def __init__(self) -> None:
        self.messages: dict[str, list[tuple[bytes, int]]] = {name: [] for name in QUEUES}
        self.policies: dict[tuple[bool, str], Policy] = {}

    def effective(self, queue: str) -> dict[str, Any]:
        """Return the limits of a queue, and its reaction to too many messages."""
        found: dict[str, Any] = {}
        for operator in (False, True):
            fitting = [
                policy
                for (kind, _), policy in self.policies.items()
                if kind == operator and re.search(policy.pattern, queue)
            ]
            fitting.sort(key=lambda policy: (-policy.priority, policy.name))
            for key, value in (fitting[0].definition if fitting else {}).items():
                found[key] = min(value, found[key]) if operator and key in found else value
        for argument, value in QUEUES[queue].items():
            key = argument[2:]
            found[key] = min(value, found.get(key, value)) if key in LIMITS else value
        return found

    def publish(self, queue: str, body: bytes, now: int) -> bool:
        """Publish a message. Return whether the queue accepts it."""
        limits, there = self.effective(queue), self.messages[queue]
        size = sum(len(each) for each, _ in there) + len(body)
        full = len(there) + 1 > limits.get("max-length", 1 << 60) or size > limits.get("max-length-bytes", 1 << 60)
        if limits.get("overflow") == "reject-publish" and full:
            return False
        there.append((body, now))
        return True

    def settle(self, now: int) -> None:
        """Remove what exceeds limits and lifetimes."""
        for queue, there in self.messages.items():
            limits = self.effective(queue)
            if limits.get("overflow", "drop-head") == "drop-head":
                while len(there) > limits.get("max-length", 1 << 60):
                    del there[0]
                while sum(len(body) for body, _ in there) > limits.get("max-length-bytes", 1 << 60):
                    del there[0]
            while there and there[0][1] + limits.get("message-ttl", 1 << 60) < now:
                del there[0]


def random_policy(rng: random.Random) -> Policy:
    operator = rng.random() < 0.3
    values = {"max-length": rng.randrange(2, 15), "max-length-bytes": rng.randrange(20, 150), "message-ttl": 300}
    keys = rng.sample(LIMITS, rng.randrange(1, 3))
    definition: dict[str, Any] = {key: values[key] for key in keys}
    if not operator and rng.random() < 0.3:
        definition["overflow"] = rng.choice(("reject-publish", "drop-head"))
    name, pattern = rng.choice("pqr"), rng.choice(PATTERNS)
    return Policy("/", name, pattern, definition, rng.randrange(3), "all", operator)


@pytest.mark.rule("PIPE-5")
@pytest.mark.rule("DUR-1")
@pytest.mark.parametrize("seed", range(12))
def test_queues_have_what_the_policies_allow(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    site, model = Site(resident_limit=rng.choice((800, 1 << 20))), Model()
    for name, arguments in QUEUES.items():
        site.queue(name, arguments)
    site.turn()
    for step in range(120):
        policies = site.broker.directory.policies
        match rng.randrange(10):
            case 0 | 1:
                policy = random_policy(rng)
                policies.put(policy)
                model.policies[policy.operator, policy.name] = policy
            case 2 if model.policies:
                operator, name = rng.choice(list(model.policies))
                policies.remove("/", name, operator=operator)
                del model.policies[operator, name]
            case 3:
                site.sync()
                site = site.restart(resident_limit=rng.choice((800, 1 << 20)))
            case 4:
                site.snapshot()
            case 5:
                site.after(rng.randrange(200))
            case _:
                for _ in range(rng.randrange(1, 6)):
                    name, body = rng.choice(list(QUEUES)), b"%03d" % step + b"." * rng.randrange(9)
                    refused = site.publish(name, body).refused
                    assert model.publish(name, body, site.now) == (not refused)
                    site.turn()
                    model.settle(site.now)
        site.turn()
        site.after(2)
        model.settle(site.now)
        for name, there in model.messages.items():
            assert site.contents(name) == [body for body, _ in there], (seed, step, name)
    site.sync()
    assert audited(export(site.storage, tmp_path)).wrong == []
