"""What the HTTP process reads from files itself, beside the broker: the journal, and the index of messages."""
