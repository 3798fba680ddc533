"""Code generation: kernels and their driver as LLVM IR."""
