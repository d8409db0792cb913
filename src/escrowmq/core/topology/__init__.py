"""Topology: virtual hosts, exchanges, bindings, and routing through them."""
