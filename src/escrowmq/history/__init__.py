"""The lives of messages: an index of the journal, kept beside it by a process of its own."""
