"""Requests to a running broker from another process: one line of JSON each way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from escrowmq.admin.socket import path
from escrowmq.text import printable

TIMEOUT: Final = 60.0
"""The maximum number of seconds without any part of an answer. A snapshot of a long backlog takes longest."""
QUICK_TIMEOUT: Final = 5.0
"""The same for questions that every broker answers at once. A process that is suspended answers nothing."""
QUICK: Final = frozenset({"ping", "replica.status"})


class AdminError(Exception):
    """The broker cannot be reached, or refuses. The text is for the operator."""


class NoBroker(AdminError):  # noqa: N818 - named after what is there
    """No process listens on the admin socket of the data directory."""


def _start(data_dir: Path) -> str:
    """Return the command that starts a broker. The file exists for a node whose journal is on a replicated log."""
    more = " --replicate …" if (data_dir / "replica.epoch").exists() else ""
    return f"escrowmq serve --data-dir {data_dir}{more}"


def ask(data_dir: Path, command: str, **arguments: Any) -> Any:
    """Return the result of an operation (see `admin.service`). Raises AdminError, which is NoBroker if none listens."""
    text = json.dumps({"command": command, "arguments": arguments}, ensure_ascii=False)
    request = text.encode("utf-8", "surrogatepass") + b"\n"
    if len(request) > path.LONGEST_REQUEST:
        raise AdminError(f"the request has more than the {path.LONGEST_REQUEST:,} bytes that the broker takes")
    timeout = QUICK_TIMEOUT if command in QUICK else TIMEOUT
    try:
        sock = path.connect(data_dir, timeout)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise NoBroker(
            f"no broker runs on {data_dir}; name the data directory of a running broker with --data-dir, "
            f"or start a broker with: {_start(data_dir)}"
        ) from error
    except PermissionError as error:
        raise AdminError(f"{data_dir / path.NAME}: only the user who runs the broker may use it") from error
    except OSError as error:
        raise AdminError(f"{data_dir / path.NAME}: {error.strerror or error}") from error
    broken_off = f"the broker on {data_dir} closed the connection before its answer was complete"
    try:
        with sock, sock.makefile("rwb") as stream:
            stream.write(request)
            stream.flush()
            line = stream.readline()
    except TimeoutError as error:
        raise AdminError(f"the broker on {data_dir} did not answer within {timeout:g} s") from error
    except OSError as error:
        raise AdminError(f"{broken_off}: {error.strerror or error}") from error
    if not line.endswith(b"\n"):
        raise AdminError(f"{broken_off}; see its log")
    answer = json.loads(line)
    if "error" in answer:
        raise AdminError(printable(str(answer["error"])))  # a name in it may contain line feeds
    return answer["result"]
