"""`escrowmq inspect`: shows and checks the contents of a journal, record by record, even of a damaged one."""
