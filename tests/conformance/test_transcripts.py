"""Play every transcript. The marks repeat the rules that a transcript covers, so that they can be counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.transcript import FOLDER, header, play


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("dtx-1-modes", marks=pytest.mark.rule("DTX-1", "TX-1")),
        pytest.param("dtx-1-not-selected", marks=pytest.mark.rule("DTX-1")),
        pytest.param("dtx-10-recover", marks=pytest.mark.rule("DTX-10", "DTX-11")),
        pytest.param("dtx-10-scan", marks=pytest.mark.rule("DTX-10")),
        pytest.param("dtx-11-heuristic-commit", marks=pytest.mark.rule("DTX-11")),
        pytest.param("dtx-11-heuristic-rollback", marks=pytest.mark.rule("DTX-11", "DTX-14")),
        pytest.param("dtx-12-limits", marks=pytest.mark.rule("TX-13", "DTX-7")),
        pytest.param("dtx-12-timeout", marks=pytest.mark.rule("DTX-12", "DTX-14")),
        pytest.param("dtx-13-malformed", marks=pytest.mark.rule("DTX-13")),
        pytest.param("dtx-13-unknown", marks=pytest.mark.rule("DTX-13")),
        pytest.param("dtx-14-rollback", marks=pytest.mark.rule("DTX-14", "ORD-2")),
        pytest.param("dtx-2-between", marks=pytest.mark.rule("DTX-2", "TX-2")),
        pytest.param("dtx-3-contradictions", marks=pytest.mark.rule("DTX-3")),
        pytest.param("dtx-3-known", marks=pytest.mark.rule("DTX-3")),
        pytest.param("dtx-3-no-permission", marks=pytest.mark.rule("DTX-3", "TX-6")),
        pytest.param("dtx-3-one-at-a-time", marks=pytest.mark.rule("DTX-3")),
        pytest.param("dtx-4-join", marks=pytest.mark.rule("DTX-4", "DTX-13")),
        pytest.param("dtx-5-fail", marks=pytest.mark.rule("DTX-5", "DTX-8")),
        pytest.param("dtx-5-suspend", marks=pytest.mark.rule("DTX-5", "DTX-4")),
        pytest.param("dtx-6-acknowledged", marks=pytest.mark.rule("DTX-6", "DTX-14")),
        pytest.param("dtx-7-close", marks=pytest.mark.rule("DTX-7", "DTX-14")),
        pytest.param("dtx-7-ended-stays", marks=pytest.mark.rule("DTX-7")),
        pytest.param("dtx-8-credit", marks=pytest.mark.rule("DTX-8")),
        pytest.param("dtx-8-prepare-waits", marks=pytest.mark.rule("DTX-8", "DUR-1")),
        pytest.param("dtx-8-read-only", marks=pytest.mark.rule("DTX-8")),
        pytest.param("dtx-8-survives-commit", marks=pytest.mark.rule("DTX-8", "DTX-9", "DTX-10", "ORD-2")),
        pytest.param("dtx-8-survives-rollback", marks=pytest.mark.rule("DTX-8", "DTX-9", "DTX-14", "ORD-2")),
        pytest.param("dtx-8-unprepared-does-not", marks=pytest.mark.rule("DTX-8")),
        pytest.param("dtx-9-deleted-queue", marks=pytest.mark.rule("DTX-9", "TX-11")),
        pytest.param("dtx-9-outcomes", marks=pytest.mark.rule("DTX-9", "TX-5")),
        pytest.param("dtx-9-returns", marks=pytest.mark.rule("DTX-9", "TX-7")),
        pytest.param("dur-1-confirms-wait", marks=pytest.mark.rule("DUR-1")),
        pytest.param("dur-1-not-confirmed", marks=pytest.mark.rule("DUR-1")),
        pytest.param("dur-2-failed-sync", marks=pytest.mark.rule("DUR-2")),
        "error-404-costs-one-channel",
        "error-406-differs",
        "error-501-frame-end",
        "error-501-frame-size",
        "error-501-frame-type",
        "error-502-malformed",
        "error-503-exchange-type",
        "error-503-state",
        "error-504-not-open",
        "error-505-unexpected",
        "error-530-channel-max",
        "error-530-consumer-tag",
        "error-540-prefetch-size",
        "error-540-unknown-method",
        pytest.param("exc-1-deleted", marks=pytest.mark.rule("EXC-1")),
        pytest.param("exc-2-locked", marks=pytest.mark.rule("EXC-2")),
        pytest.param("exc-3-never-durable", marks=pytest.mark.rule("EXC-3")),
        pytest.param("ord-1-publication-order", marks=pytest.mark.rule("ORD-1")),
        pytest.param("ord-2-back-in-place", marks=pytest.mark.rule("ORD-2")),
        pytest.param("ord-2-cancelled-consumer", marks=pytest.mark.rule("ORD-2")),
        pytest.param("ord-3-several-consumers", marks=pytest.mark.rule("ORD-3")),
        pytest.param("ord-4-together", marks=pytest.mark.rule("ORD-4")),
        pytest.param("ord-5-restart", marks=pytest.mark.rule("ORD-5", "DUR-1")),
        pytest.param("ord-6-priorities", marks=pytest.mark.rule("ORD-6", "ORD-2")),
        "outcomes",
        pytest.param("tx-1-confirm-mode", marks=pytest.mark.rule("TX-1")),
        pytest.param("tx-1-not-selected", marks=pytest.mark.rule("TX-1")),
        pytest.param("tx-1-select", marks=pytest.mark.rule("TX-1")),
        pytest.param("tx-10-close", marks=pytest.mark.rule("TX-10", "ORD-2")),
        pytest.param("tx-11-deleted-queue", marks=pytest.mark.rule("TX-11")),
        pytest.param("tx-12-next", marks=pytest.mark.rule("TX-12")),
        pytest.param("tx-13-age", marks=pytest.mark.rule("TX-13")),
        pytest.param("tx-13-bytes", marks=pytest.mark.rule("TX-13")),
        pytest.param("tx-13-full-queue", marks=pytest.mark.rule("TX-5", "TX-13")),
        pytest.param("tx-13-operations", marks=pytest.mark.rule("TX-13")),
        pytest.param("tx-2-invisible", marks=pytest.mark.rule("TX-2")),
        pytest.param("tx-2-until-durable", marks=pytest.mark.rule("TX-2", "TX-8", "DUR-1")),
        pytest.param("tx-3-settlements", marks=pytest.mark.rule("TX-3")),
        pytest.param("tx-4-rollback", marks=pytest.mark.rule("TX-4", "TX-12")),
        pytest.param("tx-5-all-or-nothing", marks=pytest.mark.rule("TX-5", "TX-8")),
        pytest.param("tx-6-no-exchange", marks=pytest.mark.rule("TX-6", "TX-10")),
        pytest.param("tx-6-no-permission", marks=pytest.mark.rule("TX-6")),
        pytest.param("tx-6-unknown-tag", marks=pytest.mark.rule("TX-6")),
        pytest.param("tx-7-returns-wait", marks=pytest.mark.rule("TX-7", "TX-8")),
        pytest.param("tx-7-returns", marks=pytest.mark.rule("TX-7")),
        pytest.param("tx-8-survives", marks=pytest.mark.rule("TX-5", "TX-8", "DUR-1")),
        pytest.param("tx-9-at-once", marks=pytest.mark.rule("TX-9")),
    ],
)
def test_the_server_follows_the_transcript(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.txt"
    marked = [rule for mark in request.node.iter_markers("rule") for rule in mark.args]
    assert ", ".join(marked) == header(path).get("rules", ""), "the mark and the transcript name different rules"
    play(path)


@pytest.mark.parametrize("piece", [1, 7])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_server_follows_the_transcript_in_small_pieces_too(path: Path, piece: int) -> None:
    play(path, piece=piece)


def test_every_transcript_is_played() -> None:
    (parametrize,) = [mark for mark in test_the_server_follows_the_transcript.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    played = {value if isinstance(value, str) else value.values[0] for value in parametrize.args[1]}
    assert played == {path.stem for path in FOLDER.glob("*.txt")}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("> 1 channel.open\n", "also received"),
        ("> 1 channel.open\n> 1 tx.select\n", "received earlier"),
        ("> 1 channel.open\n< 1 tx.select-ok\n", "received: "),
        ("< 1 channel.open-ok\n", "nothing was received"),
        ("> 1 queue.declare queue=q\n< closed\n", "the connection is open"),
        (
            "> 1 channel.open\n< 1 channel.open-ok\n> 1 queue.declare queue=q\n< 1 queue.declare-ok queue=p\n",
            "queue is 'q'",
        ),
        ("! explode\n", "unknown command"),
        ("1 channel.open\n", "not a line of a transcript"),
    ],
)
def test_a_wrong_transcript_fails_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(text)
    with pytest.raises(AssertionError, match=why) as failure:
        play(path)
    assert "wrong.txt" in str(failure.value)
