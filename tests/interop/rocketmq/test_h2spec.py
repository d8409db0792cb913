"""h2spec, the conformance tests for HTTP/2, passes on the port for gRPC. `make go` compiles it."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.interop.rocketmq.brokers import ServedBroker

PROGRAM = Path(sys.prefix, "h2spec")
PATIENCE = 120
CASES = 146

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not PROGRAM.exists(), reason="needs make go")]


def test_every_case_of_h2spec_passes(grpc_broker: ServedBroker, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    command = [str(PROGRAM), str(grpc_broker.ports.grpc), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    cases = list(ET.parse(report).iter("testcase"))
    failed = [case.attrib for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case.attrib for case in cases if case.find("skipped") is not None]
    assert (len(cases), failed, skipped) == (CASES, [], [])
