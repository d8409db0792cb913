"""What is told if a log cannot be opened at all."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("engine", ["kafka", "nats"])
def test_a_missing_library_for_compression_is_told_alike(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(EngineMissing, match=rf"pip install 'escrowmq\[replication-{engine}\]'"):
        check_url(f"{engine}://127.0.0.1:1/t")


def test_a_bad_url_is_refused_before_anything_is_imported() -> None:
    for asked in (open_log, check_url):
        with pytest.raises(ValueError, match="no engine is called 'redis'"):
            asked("redis://127.0.0.1/t")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://127.0.0.1:1/t?sasl.bogus=1", r't: No such configuration property: "sasl\.bogus"'),
        ("kafka://127.0.0.1:1/t?security.protocol=bogus", 't: Invalid value "bogus" for .* "security.protocol"'),
        ("kafka://user@127.0.0.1:1/t", "t: .*sasl.username and sasl.password must be set"),
        ("nats+tls://127.0.0.1:1/t?cacertfile=/nowhere", r"t: certificates: .*No such file.* \(/nowhere\)"),
        ("nats+tls://127.0.0.1:1/t?verify=maybe", "t: verify must be verify_peer or verify_none, not 'maybe'"),
    ],
)
def test_parameters_that_the_library_refuses_are_an_error_in_one_line(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"bad URL \w.*/" + reason) as raised:
        check_url(url)
    assert "\n" not in str(raised.value)


CREDENTIALS = """-----BEGIN NATS USER JWT-----
a.b.c
------END NATS USER JWT------

************************* IMPORTANT *************************
-----BEGIN USER NKEY SEED-----
SUAX
------END USER NKEY SEED------
"""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (CREDENTIALS, None),
        (CREDENTIALS.replace("SUAX", ""), r".*user\.creds has no token and key of a user of NATS"),
        (None, r".*No such file.*user\.creds"),
    ],
    ids=["whole", "without-key", "missing"],
)
def test_a_file_with_credentials_is_read_before_nats_is_asked(
    content: str | None, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "user.creds"
    url = f"nats://127.0.0.1:1/t?credentials={file}"
    monkeypatch.setitem(sys.modules, "nkeys", ModuleType("nkeys"))
    sys.modules["nkeys"].__spec__ = ModuleSpec("nkeys", None)
    if content is not None:
        file.write_text(content)
    if reason is None:
        check_url(url)
        return
    with pytest.raises(ValueError, match=r"bad URL nats://.*: credentials: " + reason):
        check_url(url)


def test_credentials_without_their_library_are_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.replica.engines.nats_login.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install 'nats-py\[nkeys\]'"):
        check_url("nats://127.0.0.1:1/t?credentials=/nowhere")


def test_certificates_that_cannot_be_used_any_more_are_as_if_nats_were_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"NATS at .* cannot be reached: certificates: .*No such file"):
        open_log(f"nats+tls://127.0.0.1:1/t?cacertfile={tmp_path / 'removed'}", timeout=0.5)


def test_a_good_url_needs_no_engine_to_be_checked() -> None:
    check_url("nats://127.0.0.1:1/t")


@pytest.mark.parametrize("url", ["kafka://127.0.0.1:1/t", "nats://127.0.0.1:1/t"])
def test_an_engine_that_is_not_there_is_an_error_in_one_line(url: str) -> None:
    with pytest.raises(OSError, match=r"at (kafka|nats)://127\.0\.0\.1:1/t cannot be reached: ") as raised:
        open_log(url, timeout=0.5)
    assert "\n" not in str(raised.value)
