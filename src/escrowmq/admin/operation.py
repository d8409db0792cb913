"""An operation of the admin service, and the error that tells an operator why it was refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Command: TypeAlias = Callable[..., Awaitable[Any]]


class OperationRefused(Exception):  # noqa: N818 - named for what happened
    """A command that cannot be done; the text is for the operator."""
