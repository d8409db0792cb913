"""Protocols, pure: bytes in, bytes out. One folder a protocol; none imports another."""
