"""Settings that hold for every test."""

from __future__ import annotations

import os
import re
import signal
import threading

import pytest
from hypothesis import HealthCheck, settings

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
