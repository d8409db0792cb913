"""The server's side of HTTP/2 (RFC 9113) as a pure state machine: bytes in, requests out, responses in, bytes out."""
