"""What is told if a log cannot be opened at all."""

from __future__ import annotations

import sys

import pytest

from escrowmq.replica.engines import EngineMissing, open_log
from escrowmq.replica.engines.opening import check_url


@pytest.mark.parametrize(
    ("url", "library", "module", "extra"),
    [
        ("kafka://127.0.0.1:1/t", "confluent_kafka", "kafka", "replication-kafka"),
        ("nats://127.0.0.1:1/t", "nats", "nats", "replication-nats"),
    ],
)
def test_a_missing_library_is_told_with_the_extra_that_brings_it(
    url: str, library: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"escrowmq.replica.engines.{module}", raising=False)
    for asked in (open_log, check_url):
        with pytest.raises(EngineMissing) as raised:
            asked(url)
        assert f"pip install 'escrowmq[{extra}]'" in str(raised.value)


def test_a_bad_url_is_refused_before_anything_is_imported() -> None:
    for asked in (open_log, check_url):
        with pytest.raises(ValueError, match="no engine is called 'redis'"):
            asked("redis://127.0.0.1/t")


def test_a_good_url_needs_no_engine_to_be_checked() -> None:
    check_url("nats://127.0.0.1:1/t")


@pytest.mark.parametrize("url", ["kafka://127.0.0.1:1/t", "nats://127.0.0.1:1/t"])
def test_an_engine_that_is_not_there_is_an_error_in_one_line(url: str) -> None:
    with pytest.raises(OSError, match=r"at (kafka|nats)://127\.0\.0\.1:1/t cannot be reached: ") as raised:
        open_log(url, timeout=0.5)
    assert "\n" not in str(raised.value)
