"""Spark starts several processes for each query. They begin quickly: pandas, which is slow to import, is left out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.sources import ROOT

PLAN = "import escrowmq.spark.source_format"
READ = """
from escrowmq.client import Properties
from escrowmq.spark.columns import Columns
from escrowmq.spark.schema import SOURCE
from tests.unit.spark.test_columns import block
assert Columns(SOURCE).batch("q", block(("", "q", Properties(), 5, False, [b"a", b"b"]))).num_rows == 2
"""


@pytest.mark.parametrize("work", [PLAN, READ], ids=["planning", "reading"])
def test_a_query_does_not_import_pandas(work: str) -> None:
    program = f"{work}\nimport sys\nprint('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"
