"""Each request has the answers that the specification names."""

from __future__ import annotations

from escrowmq.client.requests import ANSWERS, Content, Requests
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties


def test_every_synchronous_request_has_its_answers_and_no_other_method_has_any() -> None:
    for method in spec.METHODS.values():
        if method.TO_SERVER:
            names = {spec.METHODS[index].NAME for index in ANSWERS[method.INDEX]}
            if method.SYNCHRONOUS and not method.NAME.endswith("-ok"):
                expected = {f"{method.NAME}-ok"} | ({"basic.get-empty"} if method.NAME == "basic.get" else set())
                assert names == expected
            else:
                assert not names or method.NAME == "basic.recover", method.NAME


def test_answers_are_assigned_in_the_order_of_the_requests() -> None:
    requests = Requests()
    first, second = requests.add(spec.QueueDeclare("a")), requests.add(spec.BasicGet("a"))
    assert first is not None
    assert second is not None
    assert not requests.expects(spec.BasicGetEmpty.INDEX)
    assert requests.expects(spec.QueueDeclareOk.INDEX)
    requests.answered(spec.QueueDeclareOk("a"), None)
    assert first.answer is not None
    assert second.answer is None
    assert requests.expects(spec.BasicGetEmpty.INDEX)
    assert requests.expects(spec.BasicGetOk.INDEX)
    requests.answered(spec.BasicGetEmpty(), None)
    assert len(requests) == 0
    assert not requests.expects(spec.BasicGetEmpty.INDEX)


def test_some_requests_have_no_answer() -> None:
    requests = Requests()
    assert requests.add(spec.BasicAck(1)) is None
    assert requests.add(spec.QueueDeclare("a", no_wait=True)) is None
    assert len(requests) == 0


def test_content_has_its_properties_decoded() -> None:
    assert Content(NO_PROPERTIES, b"").properties == Properties()
