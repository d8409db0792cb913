"""Write the modules of src/escrowmq/wire/rocketmq/proto from the `.proto` files there, by the compiler of grpcio-tools.

It writes definition_pb2.py, service_pb2.py and their stubs. With `--check` it writes nothing, and exits with 1 if a
file differs from the generated text.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from tools.pages import ROOT, asked_to_check

SOURCES = ROOT / "src"
FOLDER = Path("escrowmq/wire/rocketmq/proto")
NAMES = ("definition", "service")


def generated() -> dict[Path, str]:
    """Return the text of each generated file, by its path below src/."""
    with tempfile.TemporaryDirectory() as out:
        code = protoc.main(
            [
                "protoc",
                f"-I{SOURCES}",
                f"-I{files('grpc_tools') / '_proto'}",
                f"--python_out={out}",
                f"--pyi_out={out}",
                *[str(FOLDER / f"{name}.proto") for name in NAMES],
            ]
        )
        if code:
            raise SystemExit(f"the protocol buffer compiler failed with exit code {code}")
        paths = [FOLDER / f"{name}_pb2{suffix}" for name in NAMES for suffix in (".py", ".pyi")]
        return {path: (Path(out) / path).read_text(encoding="utf-8") for path in paths}


def main(arguments: list[str] | None = None, root: Path = SOURCES) -> int:
    """Write the modules, or with `--check` compare them. Returns the exit code."""
    check = asked_to_check(arguments, "Write the modules of RocketMQ's protocol buffers.")
    stale = 0
    for path, text in generated().items():
        target = root / path
        if not check:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            print(f"src/{path} is stale; run: python -m tools.gen_proto", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
