"""The format's bytes match the documentation and are read back unchanged."""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "journal.md"
HEADER = fmt.FileHeader(fmt.TYPE_SEGMENT, b"0123456789abcdef", 4096, 1_700_000_000_000_000)
STRUCTS = {
    "File header": (fmt.FILE_HEADER, fmt.FILE_HEADER_SIZE),
    "Frame header": (fmt.FRAME_HEADER, fmt.FRAME_HEADER_SIZE),
    "Index entry": (fmt.FOOTER_ENTRY, fmt.FOOTER_ENTRY_SIZE),
    "Footer end": (fmt.FOOTER_END, fmt.FOOTER_END_SIZE),
}
CODES = {"u16": "H", "u32": "I", "u64": "Q"}


def documented(title: str) -> list[tuple[int, int, str]]:
    """Return offset, size and type of each row of the table under this heading."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {title}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\S+) \|", section, re.MULTILINE)
    return [(int(offset), int(size), kind) for offset, size, kind in rows]


@pytest.mark.parametrize("title", STRUCTS)
def test_documented_offsets_are_those_of_the_code(title: str) -> None:
    layout, size = STRUCTS[title]
    rows = documented(title)
    assert "<" + "".join(CODES.get(kind, f"{length}s") for _, length, kind in rows) == layout.format
    offset = 0
    for at, length, _ in rows:
        assert at == offset
        offset += length
    assert offset == size == layout.size


@pytest.mark.parametrize(
    "name",
    [
        "VERSION",
        "OLDEST_VERSION",
        "FRAME_VERSION",
        "TYPE_SEGMENT",
        "TYPE_SNAPSHOT",
        "FILE_MAGIC",
        "FRAME_MAGIC",
        "FOOTER_MAGIC",
        "ALIGNMENT",
        "MAX_RECORD",
        "INDEX_STRIDE",
    ],
)
def test_documented_constants_are_those_of_the_code(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| `(.+?)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    value = getattr(fmt, name)
    assert row[1] == (value.decode() if isinstance(value, bytes) else str(value))


def test_documented_example_equals_the_output_of_the_code() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Example\n")[1]
    shown = bytes.fromhex("".join(re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)", section, re.MULTILINE)))
    header = fmt.FileHeader(fmt.TYPE_SEGMENT, b"0123456789abcdef", 0, 1)
    parts = fmt.pack_frame(0, 2, [b"helloyou"], array("I", (0, 5, 8)), b"\x01\x02", header.seed)
    assert shown == header.pack() + b"".join(parts)


def test_file_header_is_decoded_as_it_was_encoded() -> None:
    assert fmt.read_file_header("f", HEADER.pack()) == HEADER
    assert HEADER.origin == 4096
    assert replace(HEADER, type=fmt.TYPE_SNAPSHOT).origin == 0


@given(st.integers(0, 8 * fmt.FILE_HEADER_SIZE - 1))
def test_any_flipped_bit_in_the_file_header_is_refused(bit: int) -> None:
    data = bytearray(HEADER.pack())
    data[bit >> 3] ^= 1 << (bit & 7)
    with pytest.raises((JournalDamaged, JournalVersionUnknown)):
        fmt.read_file_header("f", bytes(data))


def test_a_newer_version_is_refused_by_name() -> None:
    data = bytearray(HEADER.pack())
    data[8] = fmt.VERSION + 1
    with pytest.raises(JournalVersionUnknown, match=f"f has journal format version {fmt.VERSION + 1}"):
        fmt.read_file_header("f", bytes(data))


def test_a_short_file_header_is_refused() -> None:
    with pytest.raises(JournalDamaged, match="ends before the end of its header"):
        fmt.read_file_header("f", HEADER.pack()[:63])


@pytest.mark.parametrize(("type_", "size"), [(3, 64), (1, 80)])
def test_unknown_type_or_size_is_refused_even_if_the_checksum_matches(type_: int, size: int) -> None:
    head = fmt.FILE_HEADER.pack(fmt.FILE_MAGIC, 1, type_, size, bytes(16), 0, 0, bytes(12), 0)[:-4]
    with pytest.raises(JournalDamaged, match="unknown file type"):
        fmt.read_file_header("f", head + struct.pack("<I", zlib.crc32(head)))


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 255)), min_size=1, max_size=20), st.integers(0, 2**60))
def test_a_frame_is_decoded_as_it_was_encoded(records: list[tuple[bytes, int]], place: int) -> None:
    lsn = 8 * place
    offsets = array("I", (0,))
    for payload, _ in records:
        offsets.append(offsets[-1] + len(payload))
    payload, kinds = b"".join(p for p, _ in records), bytes(k for _, k in records)
    data = b"".join(fmt.pack_frame(lsn, 99, [p for p, _ in records], offsets, kinds, HEADER.seed))
    assert len(data) % fmt.ALIGNMENT == 0
    header = fmt.read_frame_header(data, lsn, HEADER.seed)
    assert header is not None
    assert (header.time_us, header.count, header.end) == (99, len(records), lsn + len(data))
    body = data[fmt.FRAME_HEADER_SIZE :]
    assert fmt.body_is_whole(header, body)
    assert body.startswith(payload)


def test_the_checksums_of_long_pieces_are_those_of_zlib() -> None:
    pieces = [b"short", bytes(range(256)) * 128 + b"long", b"x" * fmt.LONG, b"short again"]
    size = sum(map(len, pieces))
    frame = b"".join(fmt.pack_frame(0, 1, pieces, array("I", (0, size)), b"\x01", HEADER.seed))
    header = fmt.read_frame_header(frame, 0, HEADER.seed)
    assert header is not None
    assert header.body_crc == zlib.crc32(frame[fmt.FRAME_HEADER_SIZE :])


@given(st.data())
def test_any_flipped_bit_in_a_frame_is_detected(data: st.DataObject) -> None:
    frame = bytearray(b"".join(fmt.pack_frame(0, 1, [b"payload"], array("I", (0, 7)), b"\x01", HEADER.seed)))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit >> 3] ^= 1 << (bit & 7)
    header = fmt.read_frame_header(bytes(frame), 0, HEADER.seed)
    assert header is None or not fmt.body_is_whole(header, bytes(frame[fmt.FRAME_HEADER_SIZE :]))


def test_a_frame_is_valid_only_at_its_address_and_in_its_file() -> None:
    frame = b"".join(fmt.pack_frame(8, 1, [b"payload"], array("I", (0, 7)), b"\x01", HEADER.seed))
    other = replace(HEADER, lsn=8192)
    assert fmt.read_frame_header(frame, 8, HEADER.seed) is not None
    assert fmt.read_frame_header(frame, 16, HEADER.seed) is None
    assert fmt.read_frame_header(frame, 8, other.seed) is None
    assert fmt.read_frame_header(frame[:39], 8, HEADER.seed) is None


def test_a_footer_is_decoded_as_it_was_encoded() -> None:
    footer = fmt.Footer(((0, 5, 0), (70_000, 6, 12)), 0, 90_000, 30, 44, 5, 8, 17)
    data = footer.pack(3)
    assert fmt.read_footer_end(data[-fmt.FOOTER_END_SIZE :]) == (len(data), 90_000)
    assert fmt.read_footer(data, 3) == footer
    assert fmt.read_footer(data, 4) is None


def test_a_footer_with_a_digest_is_decoded_as_it_was_encoded() -> None:
    footer = fmt.Footer(((0, 5, 0),), 0, 90_000, 30, 44, 5, 8, 17, b"d" * fmt.CHAIN_SIZE, fmt.OF_HEADERS)
    data = footer.pack(3)
    assert fmt.read_footer_end(data[-fmt.FOOTER_END_SIZE :]) == (len(data), 90_000)
    assert fmt.read_footer(data, 3) == footer


@given(st.data())
def test_any_flipped_bit_in_a_footer_is_detected(data: st.DataObject) -> None:
    footer = bytearray(fmt.Footer(((0, 5, 0),), 0, 90, 30, 44, 5, 8, 17).pack(3))
    bit = data.draw(st.integers(0, 8 * len(footer) - 1))
    footer[bit >> 3] ^= 1 << (bit & 7)
    end = fmt.read_footer_end(bytes(footer[-fmt.FOOTER_END_SIZE :]))
    assert end is None or end[0] != len(footer) or fmt.read_footer(bytes(footer), 3) is None


@pytest.mark.parametrize("name", ["lock", "0.log", "000000000000000G.log", "0000000000000000.txt", "0000000000000000"])
def test_other_file_names_are_ignored(name: str) -> None:
    assert fmt.parse_name(name) is None


def test_names_carry_the_lsn() -> None:
    assert fmt.segment_name(255) == "00000000000000ff.log"
    assert fmt.parse_name(fmt.segment_name(255)) == (fmt.TYPE_SEGMENT, 255)
    assert fmt.parse_name(fmt.snapshot_name(256)) == (fmt.TYPE_SNAPSHOT, 256)
