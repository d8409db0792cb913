"""Find the broker's URL in an environment variable or a file, so that plans and checkpoints contain no credentials."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from escrowmq.client import Error, Parameters, parse_url
from escrowmq.client.parameters import parameters
from escrowmq.client.reads import PROPERTY
from escrowmq.spark.errors import OptionError

DEFAULT: Final = "ESCROWMQ_URL"
CONNECTION_TIMEOUT: Final = 5.0
"""The time limit for connecting to the broker, in seconds, unless the URL sets connection_timeout."""
READ_TIMEOUT: Final = 60.0
"""The same for a connection that only reads. A standby reads its journal before it serves the connection."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The source of the broker's URL. Exactly one field is set.

    Args:
        variable: the name of an environment variable.
        file: the path of a file.
        url: the URL itself.
    """

    variable: str = ""
    file: str = ""
    url: str = field(default="", repr=False)

    @classmethod
    def of(cls, connection: str | None, url: str | None) -> Endpoint:
        """Create an endpoint from the options `connection` and `url`.

        Raises:
            OptionError: both options are given, or `connection` names neither an environment variable nor a file.
        """
        if connection is not None and url is not None:
            raise OptionError("the options connection and url exclude each other; set only one of them")
        if url is not None:
            return cls(url=url)
        name = DEFAULT if connection is None else connection.strip()
        if "://" in name and not name.startswith("file:"):
            raise OptionError(
                "option connection must name an environment variable or a file that contains the URL, not be the URL"
            )
        if name.startswith("file:"):
            return cls(file=name.removeprefix("file:").replace("//", "", 1) if "://" in name else name[5:])
        if "/" in name:
            return cls(file=name)
        name = name.removeprefix("env:")
        if not _VARIABLE.fullmatch(name):
            raise OptionError(f"option connection must name an environment variable or a file, not {name!r}")
        return cls(variable=name)

    def __str__(self) -> str:
        """Return the source of the URL, for messages."""
        if self.variable:
            return f"environment variable {self.variable}"
        return f"file {self.file}" if self.file else "option url"

    def resolve(self) -> str:
        """Return the URL.

        Raises:
            OptionError: the environment variable is not set, or the file cannot be read.
        """
        if self.url:
            return self.url
        if self.variable:
            found = os.environ.get(self.variable, "")
            if not found:
                raise OptionError(
                    f"{self} is not set on {os.uname().nodename}; set it to the broker's URL, "
                    "or name another variable with option connection"
                )
            return found.strip()
        try:
            return Path(self.file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise OptionError(f"cannot read the broker's URL from {self}: {error.strerror}") from None

    def parameters(self, name: str, reads: str = "") -> list[Parameters]:
        """Connection parameters from each URL, with `name` as the connection's default name.

        Several URLs, with spaces between them, are those of brokers with one journal, of which the leader is wanted.
        With a single one, `reads` tells a standby that it can serve the connection, and how: see `client.reads`.

        Raises:
            OptionError: the URL is missing or invalid.
        """
        try:
            urls = self.resolve().split()
            return [_parameters(url, name, reads if len(urls) == 1 else "") for url in urls]
        except Error as error:
            raise OptionError(f"{self}: {error}") from None

    def address(self) -> str:
        """Return the broker's host and port, for messages; those of all brokers, if there are several.

        Raises:
            OptionError: the URL is missing or invalid.
        """
        try:
            return ", ".join(parse_url(url).address for url in self.resolve().split())
        except Error as error:
            raise OptionError(f"{self}: {error}") from None


def _parameters(url: str, name: str, reads: str) -> Parameters:
    wanted: dict[str, object] = {"heartbeat_thread": True}
    if reads:
        wanted["client_properties"] = {PROPERTY: reads}
    if "connection_timeout=" not in url:
        wanted["connection_timeout"] = READ_TIMEOUT if reads else CONNECTION_TIMEOUT
    return parameters(url, **wanted, **({} if "name=" in url else {"name": name}))
