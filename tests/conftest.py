"""Settings that hold for every test."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
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

# Collecting the tests makes millions of objects, hardly any of which are garbage. `pytest_collection_finish` ends this.
gc.disable()

# A shell ignores SIGINT in processes that it starts in the background, and the tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long forms of tests unless `-m` names them, and set the order of tests in several processes.

    A default such as `-m "not long"` in pyproject.toml would not hold: any other `-m` replaces it.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid, slow=item.get_closest_marker("slow") is not None))
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
    gc.enable()


GROUPS = {
    "tests/pipeline/test_lake.py": "lake",  # it starts another version of Spark, so it need not wait for the others
    "tests/pipeline/": "pipeline",
    "tests/spark/": "spark",
    "tests/spark_kill/": "spark",
    "tests/interop/test_qpid_jms.py": "qpid-jms",
    "tests/interop/test_rabbitmq_java.py": "rabbitmq-java",
    "tests/engines/": "engines",
    "tests/unit/perf/test_runner.py": "rabbitmq",
    "tests/xa/test_participants.py": "postgresql",
    "tests/unit/test_layers.py": "sources",
    "tests/unit/test_style.py": "sources",
}
"""Tests of a group run in one process. They share a Spark session, a server or a Java, which start slowly, or the
parsed sources.
"""
SHARING = ("tests/integration/", "tests/replica/")
"""Each file in these folders is a group, whose tests share a broker, or a replicated log."""
FILES = (*SHARING, "tests/conformance/", "tests/property/", "tests/unit/")
"""Each file in these folders is a group, too. Thousands of quick tests, each a group, would keep the scheduler busy:
its work grows with the square of their number. The tests of a file also share what it caches.
"""


def group_of(test: str) -> str:
    """Return the group of a test, by its path; a test that shares nothing is a group of its own."""
    alone = test.partition("::")[0] if test.startswith(FILES) else test
    return next((group for path, group in GROUPS.items() if test.startswith(path)), alone)


def turn_of(test: str, *, slow: bool) -> int:
    """Return when a test begins if several processes share the tests: 0 is first.

    Groups, each of which occupies one process for long, begin first, in the order of `GROUPS`. Quick tests are last,
    so that all processes end at about the same time.
    """
    order = [*dict.fromkeys(GROUPS.values())]
    group = group_of(test)
    if group in order:
        return order.index(group)
    return len(order) if slow or test.startswith(SHARING) else len(order) + 1


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole groups to processes, in the order of the tests.

    `--dist loadgroup` of pytest-xdist 3.8 does not do so with pytest 9.2: it ignores the mark `xdist_group` silently.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    config.option.loadscopereorder = False  # by default, the group with the most tests is the first, however quick
    return ByGroup(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are processors: many tests wait, for a heartbeat or another process."""
    return (os.cpu_count() or 1) + 2


MOST_DESCRIPTORS = 200
"""The files and sockets that a process of tests may have open. Most have 20, and those with a Spark session 40."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail if tests have left too many files and sockets open: the process may later run out of them."""
    yield
    if len(descriptors()) > MOST_DESCRIPTORS:
        gc.collect()
        left = descriptors()
        if len(left) > MOST_DESCRIPTORS:
            pytest.fail(f"this test or earlier ones left files or sockets open; {len(left)} are: {left}", pytrace=False)


def descriptors() -> list[str]:
    """Return the numbers of this process's open descriptors; none are known on systems without /proc."""
    with suppress(FileNotFoundError):
        return os.listdir("/proc/self/fd")
    return []


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what programs that a test runs in this process have done to the log."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if root.level != level or root.handlers != handlers:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
