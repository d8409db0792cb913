"""`escrowmq audit --message` tells every record about a message, with time and LSN."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from escrowmq.cli import main
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.pipeline.tracing import lives
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Id, Neutral, UniqueId
from tests.pipeline.identified import of_identities
from tests.pipeline.journals import Scribe

USUAL = "8c24e7b7-2002-3bc0-bb4b-a8af3631019d"


def test_a_message_is_followed_from_queue_to_queue(tmp_path: Path) -> None:
    of_identities(tmp_path)
    told = {(life.queue, life.position): [step.what for step in life.steps] for life in lives(tmp_path, "m-1")}
    assert told == {
        ("orders", 2): ["published", "delivered to ", "left its queue: rejected"],
        ("dead", 1): ["published"],
    }


@pytest.mark.parametrize("written", [USUAL, f"ID:{USUAL}", f"urn:uuid:{USUAL}", USUAL.replace("-", "").upper()])
def test_a_message_whose_id_is_a_uuid_is_found_as_each_client_writes_it(tmp_path: Path, written: str) -> None:
    """The first message has the id as octets, as from Qpid JMS over AMQP 0-10; the second as a text of AMQP 0-9-1."""
    ids: tuple[Id, ...] = (UniqueId(bytes.fromhex(USUAL.replace("-", ""))), f"urn:uuid:{USUAL}", "m-1")
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "orders")
        for position, (protocol, ident) in enumerate(zip((100, 91, 91), ids, strict=True), 1):
            envelope, content = FORMATS[protocol].encode(Neutral("", "orders", message_id=ident))
            block = encode_block(7, envelope, [content])
            scribe.append(Kind.PUBLISH, encode_targets([(1, position)]), *block)
    assert [life.position for life in lives(tmp_path, written)] == [1, 2]


def test_the_command_prints_a_line_for_each_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_identities(tmp_path)
    assert main(["audit", str(tmp_path), "--message", "m-0"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "orders 1 in virtual host /: message-id m-0, correlation-id c-0, publisher ann"
    assert len(lines) == 3
    assert all(re.fullmatch(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}  LSN 0x[0-9a-f]+  \S.*", line) for line in lines)


def test_an_id_that_no_message_has_is_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_identities(tmp_path)
    assert main(["audit", str(tmp_path), "--message", "m-9"]) == 2
    assert capsys.readouterr().err == f"escrowmq: no message with the id 'm-9' was on a queue in {tmp_path}\n"


def test_an_audit_needs_a_folder_for_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_identities(tmp_path)
    assert main(["audit", str(tmp_path)]) == 2
    assert "Missing option '--out'" in capsys.readouterr().err
