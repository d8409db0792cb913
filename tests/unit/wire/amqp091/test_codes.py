"""The generated numbers, compared with the tables of the specification (0-9-1, section 1.2) and RabbitMQ's
additions.
"""

from __future__ import annotations

from escrowmq.wire.amqp091 import codes

SOFT = {311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 313: "NO_CONSUMERS", 403: "ACCESS_REFUSED", 404: "NOT_FOUND"}
SOFT |= {405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED"}
HARD = {320: "CONNECTION_FORCED", 402: "INVALID_PATH", 501: "FRAME_ERROR", 502: "SYNTAX_ERROR", 503: "COMMAND_INVALID"}
HARD |= {504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME", 506: "RESOURCE_ERROR", 530: "NOT_ALLOWED"}
HARD |= {540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR"}


def test_every_reply_code_has_its_name_and_its_severity() -> None:
    assert codes.REPLY_NAMES == {200: "REPLY_SUCCESS"} | SOFT | HARD
    assert set(HARD) == codes.HARD_ERRORS


def test_names_and_constants_agree() -> None:
    assert all(getattr(codes, name) == code for code, name in codes.REPLY_NAMES.items())


def test_frame_constants() -> None:
    types = (codes.FRAME_METHOD, codes.FRAME_HEADER, codes.FRAME_BODY, codes.FRAME_HEARTBEAT)
    assert types == (1, 2, 3, 8)
    assert (codes.FRAME_END, codes.FRAME_MIN_SIZE) == (0xCE, 4096)


def test_outcomes_of_branches_have_the_numbers_of_the_dtx_classes() -> None:
    names = ("RBROLLBACK", "RBTIMEOUT", "HEURHAZ", "HEURCOM", "HEURRB", "HEURMIX", "RDONLY", "OK")
    assert [getattr(codes, f"XA_{name}") for name in names] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_fourteen_properties_in_the_order_of_their_flags() -> None:
    names = [name for name, _ in codes.BASIC_PROPERTIES]
    assert names == [
        "content_type",
        "content_encoding",
        "headers",
        "delivery_mode",
        "priority",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "timestamp",
        "type",
        "user_id",
        "app_id",
        "cluster_id",
    ]
