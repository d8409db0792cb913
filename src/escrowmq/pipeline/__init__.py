"""The audit pipeline on Spark: it turns the broker's journal into tables of what happened and of broken rules."""
