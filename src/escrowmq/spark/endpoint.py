"""Which broker: named by an environment variable or a file, so that no plan, checkpoint or log has the credentials."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from escrowmq.client import Error, Parameters, parse_url
from escrowmq.client.parameters import parameters
from escrowmq.spark.errors import OptionError

DEFAULT: Final = "ESCROWMQ_URL"
CONNECTION_TIMEOUT: Final = 5.0
"""Seconds for reaching the broker, unless the URL says something else."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the URL of the broker is to be found: `variable`, `file`, or, given as it is, `url`."""

    variable: str = ""
    file: str = ""
    url: str = field(default="", repr=False)

    @classmethod
    def of(cls, connection: str | None, url: str | None) -> Endpoint:
        """From the options `connection` and `url`. Raises OptionError."""
        if connection is not None and url is not None:
            raise OptionError("give one of the options connection and url, not both")
        if url is not None:
            return cls(url=url)
        name = DEFAULT if connection is None else connection.strip()
        if "://" in name and not name.startswith("file:"):
            raise OptionError(
                "option connection names an environment variable or a file; a URL belongs in one of these"
            )
        if name.startswith("file:"):
            return cls(file=name.removeprefix("file:").replace("//", "", 1) if "://" in name else name[5:])
        if "/" in name:
            return cls(file=name)
        name = name.removeprefix("env:")
        if not _VARIABLE.fullmatch(name):
            raise OptionError(f"option connection names an environment variable or a file, which {name!r} is not")
        return cls(variable=name)

    def __str__(self) -> str:
        """For messages: where the URL comes from."""
        if self.variable:
            return f"environment variable {self.variable}"
        return f"file {self.file}" if self.file else "option url"

    def resolve(self) -> str:
        """The URL. Raises OptionError if it is not there."""
        if self.url:
            return self.url
        if self.variable:
            found = os.environ.get(self.variable, "")
            if not found:
                raise OptionError(
                    f"{self} is to have the broker's URL, and is not set on {os.uname().nodename}; "
                    "or name another one by option connection"
                )
            return found.strip()
        try:
            return Path(self.file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise OptionError(f"{self} is to have the broker's URL: {error.strerror}") from None

    def parameters(self, name: str) -> Parameters:
        """How to connect. Raises OptionError."""
        url = self.resolve()
        wanted: dict[str, object] = {"heartbeat_thread": True}
        if "connection_timeout=" not in url:
            wanted["connection_timeout"] = CONNECTION_TIMEOUT
        try:
            return parameters(url, **wanted, **({} if "name=" in url else {"name": name}))
        except Error as error:
            raise OptionError(f"{self}: {error}") from None

    def address(self) -> str:
        """Host and port, for messages. Raises OptionError."""
        try:
            return parse_url(self.resolve()).address
        except Error as error:
            raise OptionError(f"{self}: {error}") from None
