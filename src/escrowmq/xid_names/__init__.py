"""The names of transaction branches that people read and write."""
