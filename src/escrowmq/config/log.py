"""The settings of the broker's log on stderr."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from escrowmq.config.values import Section


class LogSection(Section):
    """The broker's log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The lowest level to log.")
    format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object per line."
    )
