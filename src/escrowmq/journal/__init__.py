"""The durable log: segments of frames, snapshots, and recovery.

Record payloads are opaque here; `core.records` defines their meaning.
"""
