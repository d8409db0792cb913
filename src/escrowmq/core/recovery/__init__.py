"""Recovery: replay of the log, snapshots, and relocation of live messages (compaction)."""
