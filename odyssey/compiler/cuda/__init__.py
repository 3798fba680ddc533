"""The compiler's second target: kernels of a plan as PTX for CUDA devices."""
