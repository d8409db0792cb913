"""The admin service's interface for other machines: HTTP, served by a process of its own."""
