"""Settings of Spark for tests, whose queries are many and small."""

from __future__ import annotations

from typing import Final

SMALL_QUERIES: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Without features that make large queries fast, and small ones slow."""
