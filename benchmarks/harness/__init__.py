"""The machinery of the benchmarks: what is timed, in which processes, and how it is told."""
