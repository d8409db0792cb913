"""Settings that are applied while the broker runs, and faults that change nothing."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.config.config import Config
from escrowmq.config.errors import ConfigError
from escrowmq.config.limits import LimitsSection
from escrowmq.config.log import LogSection
from escrowmq.config.security import TlsSection
from escrowmq.server.reloading import Reloading
from escrowmq.server.tls import server_context
from tests.certificates import Authority


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger, which gets back its handlers and level."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logging.captureWarnings(capture=False)


def unwanted(_: ssl.SSLContext) -> None:
    pytest.fail("the listeners get other certificates")


def test_settings_of_the_log_are_applied_and_others_are_named(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    new = Config(log=LogSection(level="warning"), data_dir=Path("/other"), limits=LimitsSection(connections=5))
    Reloading(Config(), lambda: new).reload(unwanted)
    assert root.level == logging.WARNING
    assert "take effect at the next start: data_dir, limits.connections" in capsys.readouterr().err


def test_the_same_settings_need_no_restart(capsys: pytest.CaptureFixture[str]) -> None:
    Reloading(Config(), Config).reload(unwanted)
    err = capsys.readouterr().err
    assert "the configuration was reloaded" in err
    assert "next start" not in err


def test_the_listeners_get_the_new_certificate(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("server")
    config = Config(tls=TlsSection(certificate=certificate, key=key))
    reloading = Reloading(config, lambda: config)
    reloading.reload(unwanted)  # there are no listeners with TLS
    assert reloading.context is None
    reloading.context = before = server_context(config.tls)
    renewed: list[ssl.SSLContext] = []
    reloading.reload(renewed.append)
    assert renewed == [reloading.context]
    assert reloading.context is not before


def test_a_fault_changes_nothing(root: logging.Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Config:
        raise ConfigError("broker.toml: a: unknown key", "broker.toml: b: unknown key")

    before = root.level, root.handlers[:]
    reloading = Reloading(Config(), refuse)
    reloading.reload(unwanted)
    assert reloading.fault() == "broker.toml: a: unknown key; broker.toml: b: unknown key"
    absent = tmp_path / "absent"
    broken = Config(tls=TlsSection(certificate=absent, key=absent), log=LogSection(level="error"))
    reloading = Reloading(Config(), lambda: broken)
    reloading.context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    reloading.reload(unwanted)
    assert reloading.fault().startswith("tls.certificate: expected a certificate chain in PEM")
    assert reloading.context is context
    assert (root.level, root.handlers[:]) == before
    assert [record.getMessage().partition("fault: ")[2].partition(";")[0] for record in caplog.records] == [
        "broker.toml: a: unknown key",
        "broker.toml: b: unknown key",
        "tls.certificate: expected a certificate chain in PEM",
    ]
