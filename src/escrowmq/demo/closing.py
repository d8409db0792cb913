"""The closing lines: the counts, the audit's verdict, and whether everything is right."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from escrowmq.demo.auditing import Audited
from escrowmq.demo.checks import Outcome, worst
from escrowmq.demo.display import Display
from escrowmq.demo.link import LATE
from escrowmq.demo.query import LATE_MINUTES
from escrowmq.demo.story import Result
from escrowmq.demo.streaming import Streaming

OFTEN = 100
"""The least number of arrivals for a mean that is worth showing."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The results to show at the end."""

    shown: Display
    result: Result
    streaming: Streaming
    outcome: Outcome
    audited: Audited

    def tell(self, transactions: int, wrong: list[str]) -> bool:
        """Show the results.

        Returns whether everything is right. `wrong` lists the faults of the table and the queue.
        """
        say, published, tally = self.shown.say, self.result.published, self.result.tally
        faults = [*self.result.faults(), *wrong, *self._of_audit()]
        if faults:
            say("WRONG", "\n".join(faults))
            say("report", str(self.audited.report))
            return False
        again = "no message reached the client twice"
        if tally.repeated:
            again = f"{tally.repeated:,} messages reached the client a second time; no commit had acknowledged them"
        say(
            "counted",
            f"{transactions:,} transactions, {published.resent} of them sent again, {len(self.streaming.rows)} epochs "
            f"of Spark, in {self.result.seconds:,.1f} s;\n{again}",
        )
        if not self.result.doubts:
            say("note", f"none of {self.result.kills} kills of the broker happened during a commit")
        if not self.streaming.kills:
            say("note", "Spark had completed every epoch before its driver could be killed")
        self._found()
        late = len(self.outcome.late)
        markers = self.audited.messages - 2 * published.count - late
        say(
            "audit",
            f"CLEAN: {self.audited.messages:,} messages ({published.count:,} on each of two queues, {late:,} late "
            f"flights, {markers} markers of this program),\n"
            f"{self.audited.records:,} records; no rule violated, nothing in doubt",
        )
        say("report", str(self.audited.report))
        say(
            "result",
            f"published {published.count:,} = consumed {tally.settled:,}; none lost, none duplicated, "
            f"all in order and with the right content;\n"
            f"published {published.count:,} = processed by Spark {self.result.processed:,} "
            f"= counted in the table {self.outcome.flights:,}",
        )
        return True

    def _of_audit(self) -> list[str]:
        audited = self.audited
        faults = []
        if not audited.clean:
            faults.append(f"the audit found {audited.violations:,} violations:")
            faults += audited.worst
        if audited.undecided:
            faults.append(f"the audit found {audited.undecided:,} branches in doubt")
        return faults

    def _found(self) -> None:
        table, late = self.outcome.table, self.outcome.late
        ordered = all(one < other for one, other in pairwise(late))
        self.shown.say(
            "late",
            f"{len(late):,} flights arrived {LATE_MINUTES} minutes late or more, as in the data set; each is on queue "
            f"{LATE} once{', in order' if ordered else ''}",
        )
        text = f"{len(table)} rows by carrier and hour in {self.outcome.files} files, all as computed from the data set"
        place = worst(table, OFTEN)
        if place is not None:
            (carrier, hour), mean = place
            text += f";\nflights of {carrier} at {hour} h arrived {mean:.0f} minutes late on average"
        self.shown.say("table", text)
