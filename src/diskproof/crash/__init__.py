"""What a crash leaves: record a writer, explore the states, check them, judge."""
