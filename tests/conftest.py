"""Settings that hold for every test."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# `dev` runs the same examples every time, without a deadline, because a busy machine is not a bug. `long` runs many.
settings.register_profile("dev", deadline=None, derandomize=True, max_examples=60, print_blob=True)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=5000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell ignores SIGINT in processes that it starts in the background, and the tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long forms of tests unless `-m` names them.

    A default such as `-m "not long"` in pyproject.toml would not hold: any other `-m` replaces it.
    """
    if re.search(r"\blong\b", config.getoption("markexpr")):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt the collected tests from garbage collections, which take 0.3 seconds of processor time with them."""
    gc.collect()
    gc.freeze()


GROUPS = {
    "tests/pipeline/test_lake.py": "lake",  # it starts another version of Spark, so it need not wait for the others
    "tests/pipeline/": "pipeline",
    "tests/spark/": "spark",
    "tests/spark_kill/": "spark",
    "tests/unit/perf/test_runner.py": "rabbitmq",
}
"""Tests of a group run in one process, where they share a Spark session or a RabbitMQ, which take long to start."""


def group_of(test: str) -> str:
    """Return the group of a test, by its path; a test that shares nothing is a group of its own."""
    return next((group for path, group in GROUPS.items() if test.startswith(path)), test)


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole groups to processes.

    `--dist loadgroup` of pytest-xdist 3.8 does not do so with pytest 9.2: it ignores the mark `xdist_group` silently.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than there are processors: some tests only wait, for a heartbeat or another process."""
    return (os.cpu_count() or 1) + 1
