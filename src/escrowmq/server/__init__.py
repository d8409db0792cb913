"""The process around the broker: event loop, sockets, threads, clock and logins."""
