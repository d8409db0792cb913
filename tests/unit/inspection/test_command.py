"""`escrowmq inspect` from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from escrowmq.cli import main
from tests.unit.inspection.journals import flip, small_journal


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["inspect", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out if code < 2 else captured.err


def test_a_journal_is_shown_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_journal(tmp_path)
    code, out = run(capsys, tmp_path)
    assert code == 0
    assert "0000000000000000.log" in out
    assert "Records: 2 PUBLISH, 2 DIGEST, 1 USER_SET, 1 COMMIT" in out
    assert "Messages: 6 published, 3 accepted" in out
    assert "Intact: every checksum and every record is valid." in out


def test_each_record_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lsns = small_journal(tmp_path)
    _, out = run(capsys, tmp_path, "--records", "--from", hex(lsns[1]))
    lines = out.splitlines()
    assert lines[0].startswith(f"{lsns[1]:#014x} 2023-11-14T22:13:20.000Z PUBLISH      queues=[[1, 0]] count=2 bytes=3")
    assert "COMMIT       branch=7 operations=[{kind=PUBLISH" in lines[3]
    assert f"DIGEST       frame={lsns[1] - 40} time_us=1700000000000000 body_crc=" in lines[4]


def test_the_output_can_be_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lsns = small_journal(tmp_path)
    code, out = run(capsys, tmp_path, "--json", "--records")
    *records, document = map(json.loads, out.splitlines())
    assert code == 0
    assert [record["lsn"] for record in records if record["kind"] != "DIGEST"] == lsns
    assert records[1]["record"]["routing_key"] == "key"
    assert document["damaged"] is False
    assert document["files"][0]["kinds"] == {"USER_SET": 1, "PUBLISH": 2, "COMMIT": 1, "DIGEST": 2}


@pytest.mark.rule("DUR-3")
def test_damage_is_named_with_file_and_offset_and_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lsns = small_journal(tmp_path)
    [file] = tmp_path.glob("*.log")
    flip(file, 64 + lsns[1])
    code, out = run(capsys, tmp_path)
    assert code == 1
    assert f"damaged: {file.name} at offset {64 + lsns[1] - 40}: the frame's checksum does not match" in out
    code, out = run(capsys, file, "--json")
    assert code == 1
    assert json.loads(out)["damaged"] is True


def test_a_torn_tail_is_reported_as_possibly_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lsns = small_journal(tmp_path)
    [file] = tmp_path.glob("*.log")
    os.truncate(file, 64 + lsns[-1] + 1)
    code, out = run(capsys, tmp_path)
    assert code == 0
    assert "the last frame is incomplete" in out
    assert "damage to that one frame looks the same" in out
    assert out.endswith("Intact: every checksum and every record before that frame is valid.\n")


def test_a_start_beyond_the_end_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_journal(tmp_path)
    _, out = run(capsys, tmp_path)
    end = out.splitlines()[1].split()[2]
    code, out = run(capsys, tmp_path, "--from", "0x100000", "--records")
    assert code == 0
    assert out == f"There is nothing at or after LSN 0x100000: the log ends at LSN {end}.\n"
    assert "There is nothing" not in run(capsys, tmp_path, "--from", "0")[1]


def test_lines_are_not_folded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    small_journal(tmp_path)
    head, row, *_ = run(capsys, tmp_path)[1].splitlines()
    assert head.endswith("State")
    assert row.endswith("sealed")


def test_wrong_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, tmp_path / "absent")[0] == 2
    code, err = run(capsys, tmp_path, "--from", "here")
    assert code == 2
    assert "'here' is not an LSN" in err
    assert main(["inspect", str(tmp_path)]) == 1
    assert "not a journal" in capsys.readouterr().err
