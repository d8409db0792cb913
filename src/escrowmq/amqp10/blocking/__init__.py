"""The blocking face of the client: one thread at a time uses a connection."""
