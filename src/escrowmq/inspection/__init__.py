"""`escrowmq inspect`: what a journal holds, checked record by record, also on a damaged one."""
