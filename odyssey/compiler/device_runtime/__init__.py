"""Runtime of devices: bind CUDA programs to states, run them, and publish their effects."""
