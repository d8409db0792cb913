"""The tests that qpid-python, the old client of Apache Qpid, has for brokers of AMQP 0-10 and for its own interface.

`make qpid-suite` installs it and runs all of them. A few also run with the other tests, if it is installed.

Tests of what only Qpid's C++ broker has are left out as whole modules: its management protocol (`management`,
`qmf_events`, `stats`, `threshold`), last-value queues (`lvq`), groups of messages (`msg_groups`), and the modules
`new_api` and `priority`, which mix these. `DIFFERENT` has the other tests that do not apply, each with its reason. A
test that begins to succeed must leave it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.broker import BrokerProcess

FOLDER: Final = Path(sys.prefix, "qpid-python")
PYTHON: Final = FOLDER / ".python"
SECONDS: Final = 540.0
QUICK: Final = ("dtx", "tx")
GROUPS: Final = (
    *QUICK,
    *("alternate_exchange", "broker", "example", "exchange", "extensions", "message", "query", "queue"),
)
API: Final = ("address", "endpoints", "message", "selector")
"""The modules with tests of the client's API."""

DIED: Final = "SelectorStopped: [Errno 9] Bad file descriptor"
"""The client raises this error once a thread has closed a socket that its selector was about to ask for. All tests that
follow in the same process fail."""
RUNS: Final = 3
"""The greatest number of runs of tests if the client's selector died."""

_BROKER: Final = "qpid_tests.broker_0_10."
_API: Final = "qpid.tests.messaging."
_MODE: Final = "expects that a message that was sent without a delivery mode arrives without one"
_EMPTY: Final = "expects that a message without a body arrives without one, and not with an empty one"
_DELETED: Final = "deletes a queue to which the session subscribes, which ends the session, as the specification says"
_BYTES: Final = "counts the octets of the header as the C++ broker sends it"
_ILLEGAL: Final = "expects illegal-argument (531) where the broker answers as for other names"

DIFFERENT: Final[dict[str, str]] = {
    _BROKER + "alternate_exchange.AlternateExchangeTests.test_queue_autodelete": "dead letters of automatic deletions",
    _BROKER + "dtx.DtxTests.test_implicit_end": "asks for a branch whose preparation was answered with rb-rollback",
    _BROKER + "exchange.DeclareMethodExchangeFieldReservedRuleTests.test_qpid": "names in qpid. are not reserved",
    _BROKER + "exchange.ExchangeTests.testHeadersBindNoMatchArg": "a binding without x-match matches all arguments",
    _BROKER + "extensions.ExtensionTests.test_timed_autodelete": "the argument qpid.auto_delete_timeout is unknown",
    _BROKER + "message.MessageTests.test_ack": "needs QMF",
    _BROKER + "message.MessageTests.test_consume_queue_not_specified": _ILLEGAL,
    _BROKER + "message.MessageTests.test_credit_flow_bytes": _BYTES,
    _BROKER + "message.MessageTests.test_window_flow_bytes": _BYTES,
    _BROKER + "queue.QueueTests.test_purge_empty_name": _ILLEGAL,
    _API + "endpoints.AddressTests.testLinkBindings": _MODE,
    _API + "endpoints.AddressTests.testLinkName": _MODE,
    _API + "endpoints.AddressTests.testNodeBindingsTopic": _MODE,
    _API + "endpoints.AddressTests.testReliabilityAtLeastOnce": _MODE,
    _API + "endpoints.ConnectionTests.testDetach": _DELETED,
    _API + "endpoints.ReceiverTests.testAtMostOnce": _MODE,
    _API + "endpoints.ReceiverTests.testMode": _DELETED,
    _API + "endpoints.ReceiverTests.testUnreliable": _MODE,
    _API + "endpoints.SessionTests.testDoubleCommit": _MODE,
    _API + "endpoints.SessionTests.testNextReceiver": _DELETED,
    _API + "endpoints.SessionTests.testReject": _MODE,
    _API + "endpoints.SessionTests.testRelease": _MODE,
    _API + "endpoints.SetupTests.testReconnect": _MODE,
    _API + "message.MessageEchoTests.testApplicationProperties": _EMPTY,
    _API + "message.MessageEchoTests.testContentTypeUnknown": _EMPTY,
    _API + "message.MessageEchoTests.testProperties": _EMPTY,
    _API + "message.MessageEchoTests.testTextPlainEmpty": _EMPTY,
}

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs Python 2.7, and make qpid-suite"),
]


def run(broker: BrokerProcess, folder: Path, module: str, *patterns: str, left_out: tuple[str, ...] = ()) -> set[str]:
    """Run the tests that match the patterns. Return the names of those that failed."""
    report = folder / "report.xml"
    command = [PYTHON.read_text(encoding="utf-8").strip(), str(FOLDER / "bin" / "qpid-python-test")]
    command += ["-b", f"guest/guest@127.0.0.1:{broker.port}", "-m", module, "-x", str(report)]
    for name in left_out:
        command += ["-i", name]
    environment = {"PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder)}
    done = subprocess.run(
        [*command, *patterns], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert report.exists(), done.stdout + done.stderr
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert cases, f"no test matches {patterns}"
    assert ", 0 skipped, " in done.stdout, done.stdout
    failed = {f"{case.get('classname')}.{case.get('name')}" for case in cases if case.find("failure") is not None}
    (folder / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return failed


def listed(prefix: str) -> tuple[str, ...]:
    """Return the tests below `prefix` that do not apply."""
    return tuple(name for name in DIFFERENT if name.startswith(prefix))


def check(own_broker: Callable[[str], BrokerProcess], folder: Path, module: str, prefix: str) -> None:
    output, patterns = folder / "output.txt", {f"{prefix}*"}
    for _ in range(RUNS):
        patterns = run(own_broker(""), folder, module, *sorted(patterns), left_out=listed(prefix))
        if not patterns or DIED not in output.read_text(encoding="utf-8"):
            break
    assert patterns == set(), output.read_text(encoding="utf-8")


@pytest.mark.rule("DTX-1", "DTX-2", "DTX-3", "DTX-4", "DTX-5", "DTX-8", "DTX-9", "DTX-10", "DTX-12", "TX-1", "TX-4")
@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in GROUPS]
)
def test_qpids_tests_of_brokers_succeed(own_broker: Callable[[str], BrokerProcess], tmp_path: Path, group: str) -> None:
    check(own_broker, tmp_path, "qpid_tests.broker_0_10", f"qpid_tests.broker_0_10.{group}.")


@pytest.mark.long
@pytest.mark.parametrize("group", API)
def test_qpids_tests_of_its_interface_succeed(
    own_broker: Callable[[str], BrokerProcess], tmp_path: Path, group: str
) -> None:
    check(own_broker, tmp_path, "qpid.tests", f"qpid.tests.messaging.{group}.")


@pytest.mark.long
@pytest.mark.parametrize("name", DIFFERENT)
def test_a_test_that_does_not_apply_fails(
    own_broker: Callable[[str], BrokerProcess], tmp_path: Path, name: str
) -> None:
    module = "qpid.tests" if name.startswith("qpid.tests.") else "qpid_tests.broker_0_10"
    assert run(own_broker(""), tmp_path, module, name) == {name}, f"{name} succeeds now"
