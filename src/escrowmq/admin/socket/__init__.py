"""The admin service's interface for the same machine: a Unix socket in the data directory, with lines of JSON."""
