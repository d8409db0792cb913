"""Queues: disciplines, consumers, settlement, dead-lettering, streams."""
