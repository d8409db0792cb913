"""The HTTP process: the interface for programs (`admin.http`) and the console for people, on one port."""
