"""One module for each peer, which a worker imports only in the process that measures it.

A module defines some of the classes `Training`, `Chain` and `DeepChain`, as the protocols in
`peers.contract` describe them; a peer that lacks a class sits that workload out.
"""

MODULES = {
    "odyssey": "peers.odyssey_tape",
    "torch": "peers.torch_eager",
    "jax": "peers.jax_jit",
    "autograd": "peers.hips_autograd",
    "numpy": "peers.hand_numpy",
}
"""The name of a peer is that of its library; the order is that of the tables."""
