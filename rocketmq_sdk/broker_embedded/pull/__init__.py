"""Reading by pull: held pulls, broadcasting groups' offsets, message look-ups."""
