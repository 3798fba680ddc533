"""Programs in memory: bound to arrays and states, called, timed."""
