"""Consumer groups over streams: each group gets every message, and its members share them."""
