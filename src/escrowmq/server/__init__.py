"""The process around the broker: event loop, sockets, threads, the clock, and who may log in."""
