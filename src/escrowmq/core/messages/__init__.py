"""Messages: envelopes, contents, entries, and how content is read back from the log."""
