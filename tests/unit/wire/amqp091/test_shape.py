"""Property lists that are not decoded: a survey finds the same values as a scan; a shape matches only well-formed
lists.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.packed import pack
from escrowmq.wire.amqp091.properties import PERSISTENT, REPLY_TO, Properties, scan
from escrowmq.wire.amqp091.shape import Shape, Shapes, Survey, Values
from escrowmq.wire.amqp091.table import FieldTable

text = st.text(max_size=12) | st.text(st.characters(codec="ascii"), max_size=12)
values = (
    st.integers(-(2**40), 2**40)
    | text
    | st.booleans()
    | st.binary(max_size=5)
    | st.none()
    | st.floats(allow_nan=False)
    | st.lists(st.booleans(), max_size=2)
)
names = text | st.sampled_from(["CC", "BCC", "x"])
lists = st.builds(
    Properties,
    content_type=st.none() | text,
    headers=st.none() | st.dictionaries(names, values, max_size=4),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | text,
    reply_to=st.none() | text | st.just(REPLY_TO),
    expiration=st.none() | st.integers(0, 10**6).map(str) | text,
    message_id=st.none() | text,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=st.none() | text,
    user_id=st.none() | text,
    app_id=st.none() | text,
).map(Properties.encode)


def surveyed(props: bytes) -> Values | None:
    return Survey(b"before" + props + b"behind", 6, 6 + len(props)).values


def shape_of(props: bytes) -> Shape:
    content = pack(props, b"x")
    survey = Survey(content, 16, 16 + len(props))
    assert survey.values is not None
    return Shape(content, 0, survey, survey.values)


def fits(shape: Shape, props: bytes) -> bool:
    content = pack(props, b"another body") + bytes(300)
    return shape.literals(content, 0) == shape.expected and b"".join(shape.texts(content, 0)).isascii()


@given(lists)
def test_a_survey_finds_the_same_values_as_a_scan(props: bytes) -> None:
    found = surveyed(props)
    if found is not None:
        scanned = scan(props)
        assert found.durable == (scanned.delivery_mode == PERSISTENT)
        assert found.priority == (scanned.priority or 0)
        assert found.expiration.decode() == (scanned.expiration or "")
        assert scanned.user_id is None
        assert not scanned.has_cc
        assert not scanned.has_bcc


@given(lists)
def test_a_survey_finds_the_reply_to_that_asks_for_direct_replies(props: bytes) -> None:
    survey = Survey(b"before" + props + b"behind", 6, 6 + len(props))
    if survey.values is not None:
        assert bool(survey.reply_to) == (scan(props).reply_to == REPLY_TO)
        if survey.reply_to:
            assert props[survey.reply_to - 6 :].startswith(b"\x15" + REPLY_TO.encode())
            assert shape_of(props).reply_to == survey.reply_to - 6 + 16


@given(lists.flatmap(lambda props: st.tuples(st.just(props), st.integers(0, len(props) - 1), st.integers(0, 255))))
@example((Properties(headers={"a": "b"}).encode(), 5, 255))
def test_a_survey_accepts_only_well_formed_lists(case: tuple[bytes, int, int]) -> None:
    props, at, octet = case
    changed = props[:at] + bytes((octet,)) + props[at + 1 :]
    for some in (changed, props[:at], props + bytes((octet,))):
        if surveyed(some) is not None:
            scan(some)


@given(lists, lists)
def test_a_shape_matches_only_lists_with_the_same_values(one: bytes, other: bytes) -> None:
    if surveyed(one) is not None and fits(shape_of(one), other):
        assert surveyed(other) == surveyed(one)


@given(lists.flatmap(lambda props: st.tuples(st.just(props), st.integers(0, len(props) - 1), st.integers(0, 255))))
def test_a_shape_matches_no_malformed_list(case: tuple[bytes, int, int]) -> None:
    props, at, octet = case
    changed = props[:at] + bytes((octet,)) + props[at + 1 :]
    if surveyed(props) is not None and fits(shape_of(props), changed):
        try:
            scan(changed)
        except SyntaxFault as fault:
            raise AssertionError(changed) from fault


def test_a_shape_matches_messages_of_one_client() -> None:
    def props(n: int) -> bytes:
        headers: FieldTable = {"n": n, "trace": f"{n:032}", "kind": "x"}
        return Properties(headers=headers, delivery_mode=2, message_id=f"{n:036}", timestamp=n).encode()

    shape = shape_of(props(1))
    assert fits(shape, props(2))
    assert not fits(shape, Properties(headers={"n": 1}, delivery_mode=2, message_id="0" * 36, timestamp=1).encode())
    assert not fits(shape, props(1).replace(b"\x02" + b"\x24", b"\x01" + b"\x24"))


def test_shapes_that_are_rarely_reused_are_learned_less_often() -> None:
    shapes = Shapes()
    learned = 0
    for number in range(1000):
        content = pack(Properties(headers={f"{number:04}": "x"}).encode(), b"x")
        survey = Survey(content, 16, content.index(b"\xce\x03"))
        assert survey.values is not None
        learned += shapes.learn(content, 0, survey, survey.values) is not None
    assert learned < 20


@pytest.mark.parametrize(
    "props", [Properties(headers={f"{n}": True for n in range(65)}), Properties(headers={"x": "x" * 1024})]
)
def test_shapes_that_take_much_memory_are_not_learned(props: Properties) -> None:
    content = pack(props.encode(), b"x")
    survey = Survey(content, 16, len(content) - 10)
    assert survey.values is not None
    assert Shapes().learn(content, 0, survey, survey.values) is None
