"""The records of the journal: kinds and codecs, by topic (docs/internals/records.md)."""
