"""`make run`: a stream of real events through a broker that is killed in the middle, counted one by one."""
