"""Classic remoting: sends, transactions and pulls, to a name server and a broker."""
