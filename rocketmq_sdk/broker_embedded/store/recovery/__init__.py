"""From the files that a stop left behind to a store that agrees with itself."""
