"""The page that a person reads: `report.html`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit, Verdict


def write_report(audit: Audit, verdict: Verdict) -> None:
    """Write it."""
