"""The study: what dynamic graphs cost beside static ones."""
