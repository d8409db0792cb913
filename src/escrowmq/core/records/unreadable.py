"""The error of a log that cannot return bytes that it holds."""

from __future__ import annotations


class LogUnreadable(Exception):  # noqa: N818 - named after the event
    """A part of the log cannot be read, now or for good. The text says which part and why.

    An operation that meets it has changed nothing yet, or the process ends (DUR-4).
    """
