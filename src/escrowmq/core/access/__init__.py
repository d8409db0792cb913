"""Users, permissions and the verdicts that follow from them."""
