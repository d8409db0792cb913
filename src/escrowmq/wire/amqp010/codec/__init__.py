"""The codec of AMQP 0-10: values, structs, commands, controls and frames. It knows no broker."""
