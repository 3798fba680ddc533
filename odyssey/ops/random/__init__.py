"""Random numbers that are counted: from a key and a counter, the same bits on every device."""
