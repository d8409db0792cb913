"""The audit pipeline on Spark: it turns the broker's journal into tables of events and of violated rules."""
