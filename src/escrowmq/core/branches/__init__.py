"""Transaction branches: states, decisions, XA demarcation and coordination."""
