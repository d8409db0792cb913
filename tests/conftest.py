"""Settings that hold for every test."""

from __future__ import annotations

import os

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
