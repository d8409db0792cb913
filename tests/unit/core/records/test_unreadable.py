"""The core recognises the journal's errors of reading, although it does not know the journal."""

from __future__ import annotations

import pytest

from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.journal.errors import JournalDamaged, JournalError, JournalUnreadable


@pytest.mark.rule("DUR-4")
@pytest.mark.parametrize("error", [JournalUnreadable("no"), JournalDamaged("f", 0, "no")])
def test_what_the_journal_cannot_read_is_unreadable(error: Exception) -> None:
    assert isinstance(error, LogUnreadable)
    assert isinstance(error, JournalError)  # the process ends if nobody handles it
