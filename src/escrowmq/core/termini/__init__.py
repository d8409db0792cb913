"""Link termini: the ends of AMQP 1.0 links at the broker, and the deliveries that are unsettled on them (SET-12)."""
