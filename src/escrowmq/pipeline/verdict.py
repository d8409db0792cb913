"""The result of an audit's run."""

from __future__ import annotations

from typing import Final, NamedTuple

WORST: Final = 10


class Verdict(NamedTuple):
    """The result of a run.

    Args:
        violations: the number of violations, including those that earlier runs have found.
        fresh: the number of violations that are new in this run.
        undecided: the number of branches in doubt.
        run: the number of the run, from 1.
        lsn: the address up to which the journal has been read.
        records: the number of records read by this run.
        messages: the number of messages checked by this run.
        bytes: the number of bytes of the log read by this run.
        worst: explanations of the first violations, at most WORST.
        head: the end of the log and its digest, from which the next run proves that the log continues.
    """

    violations: int
    fresh: int
    undecided: int
    run: int
    lsn: int
    records: int
    messages: int
    bytes: int
    worst: tuple[str, ...] = ()
    head: str = ""

    @property
    def clean(self) -> bool:
        """Whether no rule was ever broken."""
        return self.violations == 0
