"""From a plan to LLVM's text: kernels, what calls them, and what Python calls."""
