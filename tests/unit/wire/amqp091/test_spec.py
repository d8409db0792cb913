"""The generated methods: octets by hand, octets of two independent implementations, and malformed arguments."""

from __future__ import annotations

from typing import Any

import pamqp.commands
import pika.spec
import pytest

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.method import Method

# Three values of each wire type, so that neighbouring fields differ. Tables contain only values that all three encode
# alike: strings and booleans, keys in order.
SAMPLES: dict[str, list[Any]] = {
    "bit": [True, False, True],
    "octet": [1, 0, 255],
    "short": [5, 0xFFFF, 0],
    "long": [6, 0xFFFFFFFF, 0],
    "longlong": [7, 2**63 - 1, 0],
    "shortstr": ["amq.direct", "x" * 127, ""],
    "longstr": [b"PLAIN AMQPLAIN", b"\0user\0pass", b""],
    "table": [{"alternate-exchange": "ae", "x": True}, {"nested": {"a": "b"}}, {}],
}
KNOWN = [kind for index, kind in spec.METHODS.items() if index in pamqp.commands.INDEX_MAPPING]
KNOWN_TO_PIKA = [
    kind for kind in KNOWN if kind is not spec.ConnectionUpdateSecret
]  # pika encodes this method, but cannot decode it
DTX = [kind for kind in spec.METHODS.values() if kind.CLASS_ID in {101, 105}]
# pamqp and pika use other names for some arguments.
RENAMED = {"no_wait": "nowait", "type": "exchange_type"}
# Methods whose reserved string pamqp sets to "0"; RabbitMQ sends an empty one.
FILLED_BY_PAMQP = (spec.ChannelOpen, spec.ChannelOpenOk)


def sample(kind: type[Method], turn: int) -> dict[str, Any]:
    """Return arguments of one method; pamqp requires a known exchange type and a non-empty virtual host."""
    values = {name: SAMPLES[wire][(n + turn) % 3] for n, (name, wire) in enumerate(kind.FIELDS)}
    return values | {name: "topic" for name in ("type", "virtual_host") if name in values}


def named(kind: type[Method]) -> str:
    return kind.NAME


def test_every_method_is_in_the_map_under_its_own_number() -> None:
    assert len(spec.METHODS) == 103
    assert all(index == kind.INDEX == kind.CLASS_ID << 16 | kind.METHOD_ID for index, kind in spec.METHODS.items())
    assert len(KNOWN) == len(pamqp.commands.INDEX_MAPPING)
    assert len(DTX) == 20
    assert len([kind for kind in spec.METHODS.values() if kind.CLASS_ID == 240]) == 19


@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("kind", KNOWN, ids=named)
def test_pamqp_writes_and_reads_the_same_octets(kind: type[Method], turn: int) -> None:
    values = sample(kind, turn)
    ours = kind(**values).encode()
    theirs: Any = pamqp.commands.INDEX_MAPPING[kind.INDEX]
    renamed = {RENAMED.get(name, name) if name not in theirs.__slots__ else name: values[name] for name in values}
    longstr = {name: value.decode() if isinstance(value, bytes) else value for name, value in renamed.items()}
    if kind not in FILLED_BY_PAMQP:
        assert ours[4:] == theirs(**longstr).marshal()
    back = theirs()
    back.unmarshal(ours[4:])
    assert {name: getattr(back, name) for name in longstr} == longstr


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("kind", KNOWN_TO_PIKA, ids=named)
def test_pika_writes_and_reads_the_same_octets(kind: type[Method], turn: int) -> None:
    values = sample(kind, turn)
    ours = kind(**values).encode()
    back = pika.spec.methods[kind.INDEX]()
    back.decode(ours, 4)
    expected = {RENAMED["no_wait"] if name == "no_wait" else name.rstrip("_"): value for name, value in values.items()}
    if kind is spec.BasicQos:
        expected["global_qos"] = expected.pop("global")
    as_text = {name: value.decode() if isinstance(value, bytes) else value for name, value in expected.items()}
    found = {name: getattr(back, name) for name in as_text}
    assert {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()} == as_text
    assert b"".join(back.encode()) == ours[4:]


@pytest.mark.parametrize(
    ("method", "octets"),
    [
        (spec.BasicAck(258, multiple=True), "003c 0050 0000000000000102 01"),
        (spec.BasicPublish("e", "rk", mandatory=True), "003c 0028 0000 01 65 02 726b 01"),
        (spec.BasicNack(1, multiple=True, requeue=False), "003c 0078 0000000000000001 01"),
        (spec.ConnectionTune(2047, 131072, 60), "000a 001e 07ff 00020000 003c"),
        (spec.ConnectionUpdateSecret(b"tok", "r"), "000a 0046 00000003 746f6b 01 72"),
        (spec.ExchangeUnbindOk(), "0028 0033"),
        (spec.DtxDemarcationSelect(), "0065 000a"),
        (spec.DtxDemarcationStart(b"xid", join=False, resume=True), "0065 0014 0000 00000003 786964 02"),
        (spec.DtxDemarcationEnd(b"xid", fail=True, suspend=False), "0065 001e 0000 00000003 786964 01"),
        (spec.DtxDemarcationEndOk(spec.XA_OK), "0065 001f 0008"),
        (spec.DtxCoordinationCommit(b"xid", one_phase=True), "0069 000a 0000 00000003 786964 01"),
        (spec.DtxCoordinationForget(b"xid"), "0069 0014 0000 00000003 786964"),
        (spec.DtxCoordinationGetTimeout(b"xid"), "0069 001e 00000003 786964"),
        (spec.DtxCoordinationGetTimeoutOk(60), "0069 001f 0000003c"),
        (spec.DtxCoordinationPrepareOk(spec.XA_RDONLY), "0069 0029 0007"),
        (spec.DtxCoordinationRecover(startscan=True, endscan=1), "0069 0032 0000 01 00000001"),
        (spec.DtxCoordinationRecoverOk({"xids": []}), "0069 0033 0000000a 04 78696473 41 00000000"),
        (spec.DtxCoordinationRollback(b"xid"), "0069 003c 0000 00000003 786964"),
        (spec.DtxCoordinationSetTimeout(b"xid", 60), "0069 0046 0000 00000003 786964 0000003c"),
    ],
    ids=lambda value: value.NAME if isinstance(value, Method) else "",
)
def test_methods_equal_octets_written_by_hand(method: Method, octets: str) -> None:
    payload = bytes.fromhex(octets)
    assert method.encode() == payload
    assert type(method).decode(payload) == method


@pytest.mark.parametrize("kind", spec.METHODS.values(), ids=named)
def test_methods_are_decoded_as_they_were_encoded(kind: type[Method]) -> None:
    for turn in range(3):
        method = kind(**sample(kind, turn))
        payload = method.encode()
        assert kind.decode(payload) == method
        assert kind.decode(b"junk" + payload, 8) == method


@pytest.mark.parametrize("kind", spec.METHODS.values(), ids=named)
def test_cut_or_overlong_arguments_are_an_error(kind: type[Method]) -> None:
    payload = kind(**sample(kind, 0)).encode()
    for size in range(4, len(payload)):
        with pytest.raises(SyntaxFault) as raised:
            kind.decode(payload[:size])
        assert raised.value.code == spec.SYNTAX_ERROR
    with pytest.raises(SyntaxFault, match=r"SYNTAX_ERROR - "):
        kind.decode(payload + b"\0")


def test_reserved_arguments_are_ignored() -> None:
    assert spec.ChannelOpen.decode(b"\0\x14\0\x0a\x02\xff\xfe") == spec.ChannelOpen()
    assert spec.BasicGet.decode(bytes.fromhex("003c 0046 ffff 01 71 00")) == spec.BasicGet("q")
    open_ = spec.ConnectionOpen.decode(bytes.fromhex("000a 0028 01 2f 01 78 01"))
    assert open_ == spec.ConnectionOpen("/")


def test_short_strings_must_be_utf8() -> None:
    assert spec.BasicConsumeOk.decode(bytes.fromhex("003c 0015 02 c3a9")).consumer_tag == "é"
    with pytest.raises(SyntaxFault, match=r"SYNTAX_ERROR - basic\.consume-ok"):
        spec.BasicConsumeOk.decode(bytes.fromhex("003c 0015 02 c328"))


@pytest.mark.parametrize(
    "method",
    [
        spec.BasicConsumeOk("x" * 256),
        spec.BasicConsumeOk("é" * 128),
        spec.BasicConsumeOk("\udcff"),
        spec.BasicQos(prefetch_count=65536),
        spec.BasicAck(-1),
        spec.QueueDeclare("q", arguments={"x" * 256: 1}),
    ],
    ids=repr,
)
def test_arguments_that_do_not_fit_are_refused(method: Method) -> None:
    with pytest.raises(ValueError, match=r"."):
        method.encode()


def test_tables_are_not_shared_between_methods() -> None:
    spec.QueueDeclare("a").arguments["x-expires"] = 1
    assert spec.QueueDeclare("b").arguments == {}


def test_directions_and_content_are_those_of_the_specification() -> None:
    content = {kind.NAME for kind in spec.METHODS.values() if kind.HAS_CONTENT}
    assert content == {
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
        "escrow.read-ok",
        "escrow.publish",
    }
    both = {kind.NAME for kind in spec.METHODS.values() if kind.TO_SERVER and kind.TO_CLIENT}
    assert {"basic.ack", "basic.nack", "basic.cancel", "channel.close", "channel.flow"} <= both
    assert not spec.BasicDeliver.TO_SERVER
    assert not spec.BasicPublish.TO_CLIENT
    assert spec.ConnectionBlocked.TO_CLIENT
    assert all(kind.TO_SERVER or kind.TO_CLIENT for kind in spec.METHODS.values())


def test_defaults_are_those_that_clients_expect() -> None:
    assert spec.ConnectionStart().version_minor == 9
    assert spec.ConnectionOpen().virtual_host == "/"
    assert spec.ExchangeDeclare().type == "direct"
    assert spec.BasicNack().requeue
    assert spec.BasicReject().requeue
