"""From Arrow columns to the octets of messages, without a Python object for each row (docs/internals/spark-sink.md)."""
