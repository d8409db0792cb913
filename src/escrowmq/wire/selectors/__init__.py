"""Selectors: filters of messages that clients write as SQL expressions or as lists of properties, for all protocols."""
