"""Messages: envelopes, contents, entries, and the pager that reads content back from the log."""
