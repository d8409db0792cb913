"""Administration of a running broker: one service of operations, and the faces through which it is reached."""
