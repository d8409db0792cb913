"""The console: web pages that show the broker to operators, and forms with which they act."""
