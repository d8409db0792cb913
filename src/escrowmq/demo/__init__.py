"""`make run`: sends real events through a broker that is killed in the middle, and counts every one of them."""
