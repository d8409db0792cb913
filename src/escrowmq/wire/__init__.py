"""Protocols without I/O: each turns bytes into bytes. Each protocol has one folder; no protocol imports another."""
