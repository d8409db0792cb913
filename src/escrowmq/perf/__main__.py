"""`python -m escrowmq.perf`."""

from escrowmq.perf.command import perf

perf(prog_name="escrowmq perf")
