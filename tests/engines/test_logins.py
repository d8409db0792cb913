"""Engines that encrypt and authenticate: Kafka with TLS, SCRAM and PLAIN; NATS with TLS and a password."""

from __future__ import annotations

import sys
from contextlib import closing
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from escrowmq.replica.engines import open_log
from tests.certificates import Authority
from tests.engines.nats_keys import Key, settings_and_credentials
from tests.engines.nats_nodes import NatsNodes
from tests.engines.secured_kafka import PASSWORD, QUOTED, USER, SecuredKafka


@pytest.mark.parametrize("more", ["", "&sasl.mechanism=PLAIN"], ids=["scram", "plain"])
def test_kafka_is_used_over_tls_with_a_login(kafka: SecuredKafka, more: str) -> None:
    with closing(open_log(kafka.secure_url(f"{USER}:{QUOTED}", more), timeout=30)) as log:
        assert log.append([b"a", b"b"]) == [0, 1]
        assert [each.data for each in log.read(0, 8)] == [b"a", b"b"]
        assert log.state().in_sync == 1


def test_kafka_refuses_a_wrong_password(kafka: SecuredKafka) -> None:
    with pytest.raises(OSError, match=r"Kafka at kafka://.*[Aa]uthentication failed") as caught:
        open_log(kafka.secure_url(f"{USER}:wrong"), timeout=5)
    assert "wrong" not in str(caught.value)


def test_a_certificate_of_another_authority_is_refused(kafka: SecuredKafka, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    url = kafka.secure_url(f"{USER}:{QUOTED}").replace(str(kafka.authority.path), str(other.path))
    with pytest.raises(OSError, match=r"Kafka at kafka://.*certificate verify failed"):
        open_log(url, timeout=5)


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(OSError, match=r"cannot be reached: .*resolve 'no\.such\.host\.invalid:9092'"):
        open_log("kafka://no.such.host.invalid:9092/journal", timeout=2)


def test_nats_is_used_over_tls_with_a_login(tmp_path: Path) -> None:
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("nats")
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
    login = f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}\n'
    with NatsNodes(tmp_path / "nodes", 1, further=tls + login) as nodes:
        url = f"nats+tls://{USER}:{QUOTED}@127.0.0.1:{nodes.ports[0]}/secured?replicas=1&cacertfile={authority.path}"
        with closing(open_log(url, timeout=30)) as log:
            assert log.append([b"a"]) == [0]
            assert log.state().in_sync == 1
        with pytest.raises(OSError, match="cannot be reached") as caught:
            open_log(url.replace(QUOTED, "wrong"), timeout=5)
        assert "wrong" not in str(caught.value).replace("wrong password", "")


def test_nats_is_used_with_a_token(tmp_path: Path) -> None:
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    with NatsNodes(tmp_path, 1, further=f'authorization {{ token: "{PASSWORD}" }}\n') as nodes:
        url = f"nats://{QUOTED}@127.0.0.1:{nodes.ports[0]}/t?replicas=1"
        with closing(open_log(url, timeout=30)) as log:
            assert log.append([b"a"]) == [0]
            assert [each.data for each in log.read(0, 8)] == [b"a"]
        with pytest.raises(OSError, match="cannot be reached"):
            open_log(url.replace(QUOTED, "wrong"), timeout=3)


def test_nats_is_used_with_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server checks token and signature. The library nkeys has no wheel, so its place is taken by `Key` here."""
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    library: Any = ModuleType("nkeys")
    library.from_seed = Key.from_seed
    library.__spec__ = ModuleSpec("nkeys", None)
    monkeypatch.setitem(sys.modules, "nkeys", library)
    monkeypatch.setattr(Key, "wipe", lambda _: None, raising=False)
    settings, credentials = settings_and_credentials()
    file = tmp_path / "user.creds"
    file.write_text(credentials)
    with NatsNodes(tmp_path / "nodes", 1, further=settings) as nodes:
        url = f"{nodes.url('journal')}&credentials={file}"
        with closing(open_log(url, timeout=30)) as log:
            assert log.append([b"a"]) == [0]
            assert [each.data for each in log.read(0, 8)] == [b"a"]
        file.write_text(settings_and_credentials()[1])
        with pytest.raises(OSError, match=r"cannot be reached: .*Authorization"):
            open_log(url, timeout=3)
