"""The keys of SCRAM and their stored form."""

from __future__ import annotations

import pytest

from escrowmq.wire.scram.keys import HASHES, SALT_SIZE, decoy, derive, find
from tests.unit.wire.scram.vectors import RFC_7677

KEYS = RFC_7677.keys
STORED = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)


def test_the_stored_form_is_that_of_postgresql() -> None:
    assert str(KEYS) == STORED
    assert find([STORED], "SCRAM-SHA-256") == KEYS


def test_keys_are_found_by_their_mechanism() -> None:
    other = derive("SCRAM-SHA-512", "x", b"salt", 4096)
    assert find([str(KEYS), str(other)], "SCRAM-SHA-512") == other
    assert find([str(KEYS)], "SCRAM-SHA-512") is None
    assert find([], "SCRAM-SHA-256") is None


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256",
        "SCRAM-SHA-256$",
        "SCRAM-SHA-256$x:YQ==$YQ==:YQ==",
        "SCRAM-SHA-256$1:YQ==$?:YQ==",
        "SCRAM-SHA-256$1:YQ==$:YQ==",
        "$1:YQ==$YQ==:YQ==",
    ],
)
def test_keys_in_an_unknown_form_are_passed_over(text: str) -> None:
    assert find([text], "SCRAM-SHA-256") is None
    assert find([text, STORED], "SCRAM-SHA-256") == KEYS


def test_keys_are_not_shown() -> None:
    assert "stored_key" not in repr(KEYS)
    assert "server_key" not in repr(KEYS)


@pytest.mark.parametrize("mechanism", HASHES)
def test_unknown_users_have_the_same_keys_each_time(mechanism: str) -> None:
    one = decoy(mechanism, "nobody", b"secret", 4096)
    assert one == decoy(mechanism, "nobody", b"secret", 4096)
    assert (
        len({one.salt, decoy(mechanism, "other", b"secret", 4096).salt, decoy(mechanism, "nobody", b"x", 1).salt}) == 3
    )
    real = derive(mechanism, "x", b"s" * SALT_SIZE, 4096)
    assert [len(one.salt), len(one.stored_key), len(one.server_key)] == [
        len(real.salt),
        len(real.stored_key),
        len(real.server_key),
    ]
