"""Settings that hold for every test."""

from __future__ import annotations

import os
import signal
import threading

from hypothesis import HealthCheck, settings

# `dev` runs the same examples every time, without a deadline, because a busy machine is not a bug. `soak` runs many.
settings.register_profile("dev", deadline=None, derandomize=True, max_examples=60, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=5000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell ignores SIGINT in processes that it starts in the background, and the tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
