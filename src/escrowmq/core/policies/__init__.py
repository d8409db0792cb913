"""Policies: arguments that an operator gives to the queues and exchanges whose names match a pattern."""
