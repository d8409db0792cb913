"""The durable log: segments of frames, snapshots, recovery. Payloads are opaque here; `core.records` gives them
meaning.
"""
