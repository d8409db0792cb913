"""A missing extra is one line that says what to install, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tokens import key_set
from tests.unit.sources import ROOT

LAUNCH = "from escrowmq.cli import main; sys.exit(main(sys.argv[1:]))"
SERVE = ("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
REPLICATE = ("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--replicate")
AUDIT = ("audit", "journal", "--out", "out", "--quiet")


def without(module: str, code: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run Python code in a process that cannot import a module. Return exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.modules[{module!r}] = None\n{code}", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("extra", "module", "arguments"),
    [
        *(("http", module, SERVE) for module in ("jinja2", "prometheus_client", "starlette", "uvicorn")),
        ("tokens", "joserfc", ("serve", "--config", "tokens.toml", "--data-dir", "data")),
        ("replication-nats", "nats", (*REPLICATE, "nats://127.0.0.1:1/log")),
        ("replication-kafka", "confluent_kafka", (*REPLICATE, "kafka://127.0.0.1:1/log")),
        *(("spark", module, AUDIT) for module in ("pyspark", "pyarrow", "numpy", "py4j")),
    ],
)
def test_a_command_says_which_extra_it_needs(
    tmp_path: Path, extra: str, module: str, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "journal").symlink_to(ROOT / "tests" / "conformance" / "journals" / "version-4")
    (tmp_path / "keys.json").write_bytes(key_set("one"))
    (tmp_path / "tokens.toml").write_text('[tokens]\nissuer = "i"\naudience = "a"\nkeys_file = "keys.json"\n')
    code, told = without(module, LAUNCH, tmp_path, *arguments)
    assert code == 2
    assert told.count("\n") == 1
    assert f"pip install 'escrowmq[{extra}]'" in told
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("url", ["kafka://127.0.0.1:9092", "redis://127.0.0.1/log", "nats://127.0.0.1:99999/log"])
def test_a_bad_url_of_a_replicated_log_is_one_line_before_anything_is_made(tmp_path: Path, url: str) -> None:
    code, told = without("unknown", LAUNCH, tmp_path, *REPLICATE, url)
    assert (code, told.count("\n")) == (2, 1)
    assert told.startswith(f"escrowmq: replication.url (--replicate): bad URL {url}: ")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("module", ["pyspark", "pyarrow", "numpy", "starlette", "psycopg"])
def test_other_commands_need_no_extra(tmp_path: Path, module: str) -> None:
    for arguments in (("--help",), ("serve", "--help"), ("audit", "--help"), ("inspect", "--help")):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.modules[{module!r}] = None; {LAUNCH}", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", ["pyarrow", "numpy"])
def test_the_connector_says_which_extra_it_needs(tmp_path: Path, module: str) -> None:
    use = "import escrowmq.spark as s, escrowmq.java as j\ntry: s.register(None)\n"
    code = use + "except j.SparkUnavailableError as error: sys.exit(str(error))"
    assert without(module, code, tmp_path) == (1, f"{module} is not installed; pip install 'escrowmq[connector]'\n")
