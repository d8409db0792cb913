"""Logins by bearer tokens (JWT): the keys of the issuer, the check of a token, and the rights that it grants."""
