"""Asking a running broker, from another process: one line of JSON there, one back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from escrowmq.admin.socket import path as socket_path
from escrowmq.text import printable

TIMEOUT: Final = 60.0
"""Seconds; a snapshot of a long backlog takes the longest."""


class AdminError(Exception):
    """The broker cannot be reached, or refuses; the text is for the operator."""


def ask(data_dir: Path, command: str, **arguments: Any) -> Any:
    """The result of a command (see `server.admin`). Raises AdminError."""
    try:
        sock = socket_path.connect(data_dir, TIMEOUT)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise AdminError(
            f"no broker runs on {data_dir}; say with --data-dir where it runs, "
            f"or start one with: escrowmq serve --data-dir {data_dir}"
        ) from error
    except PermissionError as error:
        raise AdminError(f"{data_dir / socket_path.NAME}: only the user who runs the broker may use it") from error
    except OSError as error:
        raise AdminError(f"{data_dir / socket_path.NAME}: {error.strerror or error}") from error
    try:
        with sock, sock.makefile("rwb") as stream:
            stream.write(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
            stream.flush()
            line = stream.readline()
    except TimeoutError as error:
        raise AdminError(f"the broker on {data_dir} did not answer in {TIMEOUT:g} s") from error
    except OSError as error:
        raise AdminError(f"the broker on {data_dir} went away: {error.strerror or error}") from error
    if not line.endswith(b"\n"):
        raise AdminError(f"the broker on {data_dir} went away without an answer")
    answer = json.loads(line)
    if "error" in answer:
        raise AdminError(printable(str(answer["error"])))  # one line, whatever is in a name
    return answer["result"]
