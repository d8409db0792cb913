"""Requests of operators' tools, such as mqadmin."""
