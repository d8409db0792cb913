"""What goes wrong between Spark and the broker, each in one line."""

from __future__ import annotations


class EscrowSparkError(Exception):
    """The text is one line that says what is wrong and, where that is known, what helps. No credentials are in it."""


class OptionError(EscrowSparkError):
    """An option, or a column, that does not make sense."""


class BrokerUnavailableError(EscrowSparkError):
    """The broker does not answer, or not to this user."""


class DataLossError(EscrowSparkError):
    """Messages that were planned to be read are gone (option `failOnDataLoss`)."""
