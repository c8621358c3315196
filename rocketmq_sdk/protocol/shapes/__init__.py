"""Headers that are as one before but for a few values, cut instead of decoded."""
