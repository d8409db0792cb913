"""What the client of an engine has told of its attempts to connect, for the error of ours that follows."""

from __future__ import annotations

from typing import Final

_MOST: Final = 3


class ClientErrors:
    """The last errors, each once. A refused login is often followed by connections that are reset."""

    def __init__(self) -> None:
        self._errors: list[str] = []

    def note(self, text: str) -> None:
        """Keep an error."""
        self._errors = [*(each for each in self._errors if each != text), text][-_MOST:]

    def __str__(self) -> str:
        return "; ".join(self._errors)
