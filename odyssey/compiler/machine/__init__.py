"""Machine code: the LLVM JIT, the disk cache, BLAS, and the number of threads."""
