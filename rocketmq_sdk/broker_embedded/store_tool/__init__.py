"""Looking at the directory of a store and repairing it, without a broker."""
