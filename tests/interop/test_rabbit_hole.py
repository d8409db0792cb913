"""rabbit-hole, a client of RabbitMQ's management API in Go: its own tests, unmodified. `make go` compiles them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.sources import ROOT

PROGRAM = Path(sys.prefix, "rabbit-hole")

_CLUSTER: Final = "the global parameters that RabbitMQ sets itself: name and id of the cluster"
SKIPPED: Final = {
    "PUT /cluster-name": "a broker is no cluster, and has the name of its host",
    "returns exported global parameters": _CLUSTER,
    "GET /api/global-parameters returns all": _CLUSTER,
    "GET /queues(/{vhost})? with arguments": "samples of figures over time, which Prometheus keeps",
    "PUT /vhosts/{name} .*creates a vhost": "description, tags and default type of queues of a virtual host",
    "federation": "federation, a plugin of RabbitMQ",
    "shovel": "shovels, a plugin of RabbitMQ",
    "PUT /api/parameters/{component}": "parameters of plugins",
    "GET /api/parameters when there are runtime parameters": "parameters of plugins",
    "client feature flags": "feature flags, with which RabbitMQ's nodes of several versions agree",
    "certificate-expiration": "a check of certificates' ends",
    "updates the user with a password hash and": "hashes of passwords in lists of users, which only definitions show",
}
"""The tests that are left out, by a regular expression for their names, and the concept that they need."""
OWN_SKIPS: Final = 2
"""Other tests, which rabbit-hole itself leaves out because RabbitMQ does not pass them."""

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not PROGRAM.exists(), reason="needs make go")]


def run(folder: Path) -> list[dict[str, Any]]:
    """Run the tests, and return Ginkgo's report of each."""
    report = folder / "report.json"
    command = [
        *("unshare", "--user", "--map-root-user", "--net", sys.executable, "-m", "tests.interop.rabbit_hole"),
        *(str(PROGRAM), str(folder), "--ginkgo.no-color", f"--ginkgo.json-report={report}"),
        *(f"--ginkgo.skip={pattern}" for pattern in SKIPPED),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    if "unshare" in done.stderr and not report.exists():
        pytest.skip(f"needs user namespaces: {done.stderr.strip()}")
    assert report.exists(), done.stdout + done.stderr
    (suite,) = json.loads(report.read_bytes())
    return [spec for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It"]


def name(spec: dict[str, Any]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])


@pytest.mark.slow
def test_its_tests_pass_but_those_of_concepts_that_do_not_exist(tmp_path: Path) -> None:
    specs = run(tmp_path)
    failed = {name(spec): spec["Failure"]["Message"] for spec in specs if spec["State"] not in ("passed", "skipped")}
    assert failed == {}
    skipped = [name(spec) for spec in specs if spec["State"] == "skipped"]
    unused = [pattern for pattern in SKIPPED if not any(re.search(pattern, each) for each in skipped)]
    assert unused == []
    listed = [each for each in skipped if any(re.search(pattern, each) for pattern in SKIPPED)]
    assert len(skipped) - len(listed) == OWN_SKIPS
    assert len(specs) - len(skipped) > 120
