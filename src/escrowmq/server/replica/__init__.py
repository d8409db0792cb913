"""The process of a node whose journal is on a replicated log: a standby at first, and later perhaps the leader."""
