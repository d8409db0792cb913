"""The broker's URL comes from an environment variable or a file, and errors never show its credentials."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from escrowmq.client.reads import PLAN, PROPERTY
from escrowmq.spark.endpoint import CONNECTION_TIMEOUT, READ_TIMEOUT, Endpoint
from escrowmq.spark.errors import OptionError

URL = "amqp://me:secret@broker:5673/v"


def test_the_url_comes_from_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCROWMQ_URL", f" {URL}\n")
    monkeypatch.setenv("OTHER", URL + "?connection_timeout=9&name=mine")
    (found,) = Endpoint.of(None, None).parameters("spark")
    assert (found.host, found.password, found.name) == ("broker", "secret", "spark")
    assert found.connection_timeout == CONNECTION_TIMEOUT
    assert found.heartbeat_thread
    other = Endpoint.of("OTHER", None)
    assert other == Endpoint.of("env:OTHER", None)
    (wanted,) = other.parameters("spark")
    assert (wanted.connection_timeout, wanted.name) == (9, "mine")
    assert pickle.loads(pickle.dumps(other)) == other


def test_several_urls_are_those_of_brokers_with_one_journal() -> None:
    endpoint = Endpoint(url="amqp://a:1/ amqp://b:2/v?name=mine")
    assert [(each.host, each.port, each.name) for each in endpoint.parameters("spark")] == [
        ("a", 1, "spark"),
        ("b", 2, "mine"),
    ]
    assert endpoint.address() == "a:1, b:2"


def test_the_url_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text(URL + "\n")
    for given in (str(path), f"file:{path}", f"file://{path}"):
        assert Endpoint.of(given, None) == Endpoint(file=str(path))
    assert Endpoint(file=str(path)).address() == "broker:5673"


@pytest.mark.parametrize(
    ("connection", "url", "text"),
    [
        ("A", URL, "set only one of them"),
        (URL, None, "not be the URL"),
        ("no name", None, "not 'no name'"),
    ],
)
def test_ambiguous_and_invalid_options_are_refused(connection: str | None, url: str | None, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        Endpoint.of(connection, url)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_variable_or_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ESCROWMQ_URL", raising=False)
    with pytest.raises(OptionError, match=r"ESCROWMQ_URL is not set on .*; set it to the broker's URL"):
        Endpoint.of(None, None).resolve()
    with pytest.raises(OptionError, match="No such file"):
        Endpoint.of(str(tmp_path / "none"), None).resolve()


@pytest.mark.parametrize("url", ["amqp://me:secret@host:port/", "http://me:secret@host/", "amqp://me:secret@h/?x=1"])
def test_an_error_about_a_url_does_not_show_its_password(url: str) -> None:
    for ask in (Endpoint(url=url).address, lambda: Endpoint(url=url).parameters("spark")):
        with pytest.raises(OptionError) as caught:
            ask()
        assert "secret" not in str(caught.value)
        assert str(caught.value).startswith("option url: ")
    assert "secret" not in repr(Endpoint(url=url))


def test_a_single_broker_is_told_that_a_connection_only_reads() -> None:
    (found,) = Endpoint(url="amqp://a:1/").parameters("spark", PLAN)
    assert found.client_properties == {PROPERTY: PLAN}
    assert found.connection_timeout == READ_TIMEOUT
    (found,) = Endpoint(url="amqp://a:1/?connection_timeout=7").parameters("spark", PLAN)
    assert found.connection_timeout == 7
    (found,) = Endpoint(url="amqp://a:1/").parameters("spark")
    assert not found.client_properties


def test_of_several_brokers_the_leader_is_wanted() -> None:
    for found in Endpoint(url="amqp://a:1/ amqp://b:2/").parameters("spark", PLAN):
        assert not found.client_properties
        assert found.connection_timeout == CONNECTION_TIMEOUT
