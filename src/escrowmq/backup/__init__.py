"""Backups of a broker: a copy of its journal in another directory, made once or kept up, and its way back."""
