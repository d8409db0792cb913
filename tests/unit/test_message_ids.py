"""A message is found by its id as each client writes it."""

from __future__ import annotations

import pytest

from escrowmq.message_ids import id_spellings

DIGITS = "8c24e7b720023bc0bb4ba8af3631019d"
USUAL = "8c24e7b7-2002-3bc0-bb4b-a8af3631019d"


@pytest.mark.parametrize(
    "written", [USUAL, DIGITS, USUAL.upper(), f"urn:uuid:{USUAL}", f"ID:{USUAL}", f"ID:AMQP_UUID:{USUAL}"]
)
def test_a_uuid_is_found_as_each_client_writes_it(written: str) -> None:
    assert {written, USUAL, f"urn:uuid:{USUAL}"} == set(id_spellings(written))


@pytest.mark.parametrize("written", ["m-1", "", "ID:m-1", f"{USUAL}:1", f"{DIGITS}0", DIGITS[1:]])
def test_what_is_no_uuid_has_one_spelling(written: str) -> None:
    assert id_spellings(written) == (written,)
