"""Settings that hold for every test."""

from __future__ import annotations

import os
import signal
import threading

from hypothesis import HealthCheck, settings

# `dev`: the same examples every run, no deadline, because a busy machine is no bug. `soak`: as many as time allows.
settings.register_profile("dev", deadline=None, derandomize=True, max_examples=60, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=5000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell that runs the tests in the background has SIGINT ignored, and so would have every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
