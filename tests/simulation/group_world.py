"""Consumer groups in a simulated world: members, an operator, retention, and a broker that crashes.

Messages are numbered; each has a key and a partition. Three groups consume the topic: one with a filter, a FIFO group,
and one whose dead letters go to a topic. Members lease, wait, acknowledge in any order, prolong, give back, and use
stale handles. In the end each group must have handled every message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.group import Group, Lease
from escrowmq.core.groups.options import GroupOptions, Handle
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.stream import StreamQueue
from tests.simulation.faulty_world import TROUBLE, FaultyWorld
from tests.simulation.group_model import GroupModel, Place, Told
from tests.simulation.ledger import Violation
from tests.simulation.steps import Step

WEIGHTS: Final[dict[str, int]] = {
    "publish": 40,
    "lease": 50,
    "wait": 12,
    "acknowledge": 60,
    "prolong": 8,
    "give back": 14,
    "bury": 4,
    "stale": 20,
    "lock": 4,
    "reset": 1,
    "time": 20,
    "turn": 30,
    "sync": 25,
    "crash": 6,
    "crash in sync": 3,
    "snapshot": 2,
    "compact": 2,
    **TROUBLE,
}
PARTITIONS: Final = 2
KEYS: Final = "abc"
INVISIBLE: Final = 200
BACK_OFF: Final = 50
ROUNDS: Final = 400
_GROUPS: Final[dict[str, GroupOptions]] = {
    "filtered": GroupOptions(max_attempts=900, back_off_ms=(BACK_OFF,)),
    "fifo": GroupOptions(fifo=True, max_attempts=900, back_off_ms=(BACK_OFF,)),
    "dying": GroupOptions(max_attempts=3, back_off_ms=(BACK_OFF,), dead_letter_topic="dead"),
}


class Headers:
    """The format of the messages: their headers are JSON in the envelope."""

    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        return json.loads(envelope.header or b"{}")  # type: ignore[no-any-return]

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        return envelope, content


def wanted(stream: StreamQueue, entry: Entry) -> bool:
    """The filter of the group `filtered`."""
    return int(entry.content) % 4 != 0


class Waiting:
    """A member that waits, and leases when it is called."""

    def __init__(self, world: GroupWorld, name: str, most: int) -> None:
        self.world = world
        self.name = name
        self.most = most

    def ready(self) -> None:
        self.world.count("called")
        self.world.waiting.discard(self)
        self.world.lease(self.name, self.most)


def _prepare(broker: Broker, life: int) -> None:
    broker.random.randbytes(4 * life)  # a real broker gets other random numbers
    broker.formats[0] = Headers()


class GroupWorld(FaultyWorld):
    """A history of consumer groups. `handles` has what members hold, also stale handles, by group."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _prepare, resident_limit=400)
        self._limit = {"x-max-length-bytes": 60} if seed % 3 == 0 else {}
        self.site.broker.topics.declare(self.site.vhost, "t", PARTITIONS, "fifo", arguments=self._limit)
        self.site.broker.topics.declare(self.site.vhost, "dead", 1)
        self.keys: dict[Place, str] = {}
        self.serials: dict[Place, int] = {}
        self.sent = 0
        self.calls = 0
        self.models = {
            name: GroupModel(name, options.fifo, options.max_attempts, self.keys) for name, options in _GROUPS.items()
        }
        for name, options in _GROUPS.items():
            self.site.broker.groups.declare("/", name, options, user="u")
        self.handles: dict[str, list[tuple[Handle, Told]]] = {name: [] for name in _GROUPS}
        self.waiting: set[Waiting] = set()
        self.answers: list[tuple[int, Callable[[], None]]] = []
        self.lock: tuple[str, int] | None = None
        self.site.sync()

    def look(self) -> None:
        for name in _GROUPS:
            self.check_progress(name)

    @property
    def streams(self) -> list[StreamQueue]:
        topic = self.site.broker.topics.find(self.site.vhost, "t")
        assert topic is not None
        return list(topic.streams)

    def group(self, name: str) -> Group:
        group = self.site.broker.groups.find("/", name)
        assert group is not None
        return group

    def name(self, step: Step) -> str:
        return list(_GROUPS)[step.who % len(_GROUPS)]

    def check_progress(self, name: str) -> None:
        group = self.group(name)
        unwanted = {place for place, serial in self.serials.items() if name == "filtered" and serial % 4 == 0}
        for partition, stream in enumerate(self.streams):
            progress = group.progress(stream)
            if progress is not None:
                self.models[name].check_progress(partition, progress, stream.begin, unwanted)

    # -- members

    def _publish(self, step: Step) -> None:
        partition, key = step.who % PARTITIONS, KEYS[step.what % len(KEYS)]
        stream = self.streams[partition]
        header = json.dumps({"x-partition": partition, "x-partition-key": key}).encode()
        for _ in range(1 + step.how % 3):
            self.sent += 1
            place = partition, stream.next_position
            self.keys[place], self.serials[place] = key, self.sent
            self.site.publish("", b"%d" % self.sent, exchange="t", header=header)

    def _lease(self, step: Step) -> None:
        self.lease(self.name(step), 1 + step.what % 4, self.streams[step.how % PARTITIONS :])

    def lease(self, name: str, most: int, streams: list[StreamQueue] | None = None) -> list[Lease]:
        """Lease messages, and check them against the model."""
        site, model = self.site, self.models[name]
        try:
            wants = wanted if name == "filtered" else None
            found = self.group(name).lease(streams or self.streams, most, INVISIBLE, wants)
        except BrokerError as error:
            if not self.refused(error):
                raise
            return []
        self.calls += 1
        batch = []
        for lease in found.leases:
            place = self.streams.index(lease.stream), lease.entry.position
            serial = int(lease.entry.content)
            if serial != self.serials[place]:
                raise Violation(f"position {place} has message {serial} instead of {self.serials[place]}")
            if name == "filtered" and serial % 4 == 0:
                raise Violation(f"message {serial} was leased, which the filter does not want")
            batch.append(Told(place, site.now + INVISIBLE, self.calls, lease.attempts))
            self.count("leased again" if lease.attempts > 1 else "leased")
        model.begins = self._begins()
        model.expire(site.now, noticed=not self.machine.unreadable)
        model.leased(batch)
        told = list(zip([lease.handle for lease in found.leases], batch, strict=True))
        self.after(found.lsn, lambda: self.handles[name].extend(told))
        return found.leases

    def _begins(self) -> dict[int, int]:
        return {partition: stream.begin for partition, stream in enumerate(self.streams)}

    def after(self, lsn: int, act: Callable[[], None]) -> None:
        """Let a client learn something once the log is synced up to `lsn`."""
        self.answers.append((lsn, act))

    def _wait(self, step: Step) -> None:
        name = self.name(step)
        member = Waiting(self, name, 1 + step.what % 3)
        self.waiting.add(member)
        self.group(name).wait(self.streams, member)

    def _held(self, step: Step) -> tuple[Handle, Told] | None:
        held = self.handles[self.name(step)]
        return held.pop(step.what % len(held)) if held else None

    def _acknowledge(self, step: Step) -> None:
        held = self._held(step)
        if held is not None:
            self.acknowledge(self.name(step), *held)

    def acknowledge(self, name: str, handle: Handle, told: Told) -> None:
        """Settle a message, and check the answer against the model."""
        model = self.models[name]
        certain = model.certainty(told, self.site.now)
        accepted = not self.group(name).settle([handle]).stale
        self._compare(name, told, accepted, certain)
        if accepted:
            model.acknowledged(told)
            self.count("acknowledged")

    def _compare(self, name: str, told: Told, accepted: bool, certain: bool | None) -> None:
        if told.place[1] < self.streams[told.place[0]].begin:
            return
        if certain is not None and accepted is not certain:
            was = "refused, although it is valid" if certain else "accepted, although it is stale"
            raise Violation(f"group {name}: the handle of {told} was {was}")
        if not accepted:
            self.count("stale handles")

    def _stale(self, step: Step) -> None:
        """Use a handle and keep it, so that it is used again."""
        held = self.handles[self.name(step)]
        if held:
            chosen = held[step.what % len(held)]
            self.acknowledge(self.name(step), *chosen)

    def _prolong(self, step: Step) -> None:
        self._change(step, failed=False)

    def _give_back(self, step: Step) -> None:
        self._change(step, failed=True)

    def _change(self, step: Step, *, failed: bool) -> None:
        held, name = self._held(step), self.name(step)
        if held is None:
            return
        (handle, told), model, group = held, self.models[name], self.group(name)
        certain = model.certainty(told, self.site.now)
        try:
            ms = BACK_OFF if failed else 3 * INVISIBLE
            new, lsn = group.give_back(handle) if failed else group.change(handle, ms)
        except BrokerError as error:
            if self.refused(error):
                self.handles[name].append(held)
            else:
                self._compare(name, told, False, certain)
            return
        self._compare(name, told, True, certain)
        self.calls += 1
        now_told = Told(told.place, self.site.now + ms, self.calls, told.attempts)
        model.changed(now_told, failed=failed)
        self.count("given back" if failed else "prolonged")
        self.after(lsn, lambda: self.handles[name].append((new, now_told)))

    def _bury(self, step: Step) -> None:
        held = self.handles["dying"]
        if not held:
            return
        handle, told = held.pop(step.what % len(held))
        certain = self.models["dying"].certainty(told, self.site.now)
        try:
            self.group("dying").dead_letter(handle)
        except BrokerError as error:
            if self.refused(error):
                held.append((handle, told))
            else:
                self._compare("dying", told, False, certain)
            return
        self._compare("dying", told, True, certain)
        self.models["dying"].dead.add(told.place)
        self.models["dying"].acknowledged(told)
        self.count("buried")

    def _lock(self, step: Step) -> None:
        if self.machine.troubled:
            return
        owner, stream = f"m{step.what % 2}", self.streams[0]
        free = self.lock is None or self.lock[0] == owner or self.lock[1] <= self.site.now
        if self.group("fifo").lock(stream, owner, self.site.now + INVISIBLE) is not free:
            raise Violation(f"the lock of {self.lock} was {'refused to' if free else 'given to'} {owner}")
        if free:
            self.lock = owner, self.site.now + INVISIBLE
            with self.machine.calm():
                self._sync(step)

    def _reset(self, step: Step) -> None:
        if self.machine.troubled:
            return
        name, partition = self.name(step), step.what % PARTITIONS
        stream = self.streams[partition]
        position = stream.begin + step.how % (stream.end - stream.begin + 1)
        with self.machine.calm():
            self._sync(step)
            self.group(name).reset(stream, position)
            self.models[name].reset(partition, position)
            self._sync(step)
        self.count("reset")

    # -- the broker's turns, its disk, and its crashes

    def _turn(self, step: Step) -> None:
        begins = self._begins()
        for model in self.models.values():
            model.begins = begins
            model.expire(self.site.now, noticed=not self.machine.unreadable)
        super()._turn(step)

    def _sync(self, step: Step) -> None:
        self._turn(step)
        super()._sync(step)

    def synced(self) -> None:
        for model in self.models.values():
            model.synced()
        answers, self.answers = self.answers, []
        for _, act in answers:
            act()

    def _compact(self, step: Step) -> None:
        super()._compact(step)
        self._sync(step)

    def dying(self) -> None:
        self.answers.clear()
        self.waiting.clear()

    def restarted(self) -> None:
        for partition, stream in enumerate(self.streams):
            lost = [place for place in self.keys if place[0] == partition and place[1] >= stream.end]
            for place in lost:
                del self.keys[place], self.serials[place]
                for model in self.models.values():
                    model.reset(partition, 0) if place in model.answered else None
                    for known in (model.settled, model.uncertain, model.pending, model.dead):
                        known.discard(place)
                    model.leases.pop(place, None)
                    model.attempts.pop(place, None)
        for model in self.models.values():
            model.crashed(earlier=self.site.now < self.latest)

    # -- the end

    def finish(self) -> None:
        """Let waiting members handle everything. Then each group must have settled every message."""
        for name, held in self.handles.items():
            for handle, told in held:
                self.acknowledge(name, handle, told)
            held.clear()
        for _ in range(ROUNDS):
            for name in _GROUPS:
                if not any(member.name == name for member in self.waiting):
                    member = Waiting(self, name, 3)
                    self.waiting.add(member)
                    self.group(name).wait(self.streams, member)
            self.do(Step("time", 0, 3, 0))
            self.do(Step("sync", 0, 0, 0))
            for name, held in self.handles.items():
                for handle, told in held:
                    self.acknowledge(name, handle, told)
                held.clear()
            self.do(Step("sync", 0, 0, 0))
            if all(self._is_done(name) for name in _GROUPS):
                break
        else:
            left = {name: [self.group(name).progress(stream) for stream in self.streams] for name in _GROUPS}
            raise Violation(f"the groups do not come to an end: progress {left}")
        self._check_dead_letters()
        self.ledger.events["messages"] = self.sent

    def _is_done(self, name: str) -> bool:
        group = self.group(name)
        return all((group.progress(stream) or stream.begin) >= stream.end for stream in self.streams)

    def _check_dead_letters(self) -> None:
        """Every message that the group `dying` did not handle is in the dead-letter topic, and none is there twice
        unless the group was reset.
        """
        dead = self.site.broker.topics.find(self.site.vhost, "dead")
        assert dead is not None
        stream = dead.streams[0]
        buried = [int(entry.content) for position in range(1, stream.end) for entry in stream.read(position, 1)]
        model = self.models["dying"]
        self.count("dead letters") if buried else None
        known = {self.serials[place] for place in model.dead if place in self.serials}
        if not self.ledger.events.get("reset"):
            if len(set(buried)) != len(buried):
                raise Violation(f"dead letters {buried} are not distinct")
            if not self.ledger.events.get("crashes") and not set(buried) <= known:
                raise Violation(f"dead letters {buried} had attempts left; only {sorted(known)} had none")
        for place, serial in self.serials.items():
            there = place[1] >= self.streams[place[0]].begin
            if there and place not in model.settled | model.uncertain and serial not in buried:
                raise Violation(f"message {serial} is neither handled nor in the dead-letter topic")
