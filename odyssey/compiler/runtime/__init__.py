"""The runtime: executables bound to states, called, and profiled."""
