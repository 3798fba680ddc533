"""From a graph to a plan: nodes, passes over them, kernels, and where values lie."""
