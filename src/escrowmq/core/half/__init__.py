"""Half messages: messages that are stored, but not delivered until their producer commits them."""
