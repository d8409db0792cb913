"""Schemas of tables in the form that Spark takes."""

from __future__ import annotations

import re

import pyarrow as pa


def ddl(schema: pa.Schema) -> str:
    """Return the schema as DDL. TIMESTAMP becomes TIMESTAMP_LTZ, because `spark.sql.timestampType` may change its
    meaning.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return re.sub(r" TIMESTAMP\b", " TIMESTAMP_LTZ", from_arrow_schema(schema).toDDL())
