"""The audit pipeline on Spark: from the broker's journal to tables that say what happened, and what should not have."""
