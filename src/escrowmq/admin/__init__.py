"""Administration of a running broker: one service of operations, and the interfaces through which it is reached."""
