"""Errors of the Spark source and sink."""

from __future__ import annotations


class EscrowSparkError(Exception):
    """The base of all errors here.

    The text is one line that says what is wrong and, if known, what to do. It never contains credentials.
    """


class OptionError(EscrowSparkError):
    """An option or a column is invalid, or names a queue or an exchange that does not exist."""


class BrokerUnavailableError(EscrowSparkError):
    """The broker does not answer, or refuses the login.

    `passing` says that a later attempt may succeed.
    """

    def __init__(self, text: str, *, passing: bool = False) -> None:
        super().__init__(text)
        self.passing = passing


class DataLossError(EscrowSparkError):
    """Messages that a query has to read no longer exist (option `failOnDataLoss`)."""
