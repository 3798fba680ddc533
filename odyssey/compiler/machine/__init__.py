"""Machine code: made by LLVM, kept on disk; BLAS, and how many threads there are."""
