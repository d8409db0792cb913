"""The admin service's face for the same machine: a Unix socket in the data directory, with lines of JSON."""
