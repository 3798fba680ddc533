"""Programs that run on the host and on a device, whose results are compared bit for bit."""

import itertools

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.table.multi_output import MultiOutput

DEVICE = "cuda:1"
"""Not the current device: what is computed outside of a call of the backend is an error."""


def current(device=DEVICE):
    """A block in which a device is the current one, as users have it that write to its arrays."""
    device = od.devices.Device(device)
    return device.backend.on(device.index)


def host(value):
    """Numbers of the host: of a Variable, an array of a device, sparse rows or a plain array."""
    if isinstance(value, Variable):
        return value.numpy()
    if isinstance(value, od.SparseRows):
        return host(value.to_dense())
    return np.asarray(value.get() if hasattr(value, "get") else value)


def is_on_device(value):
    array = value._array if isinstance(value, Variable) else value
    return hasattr(array, "get") and not isinstance(array, np.ndarray)


def assert_equal_bits(got, wanted):
    """Equal trees of numbers, also in dtype and in the sign of zeros."""
    pairs = list(zip(od.tree.leaves(got), od.tree.leaves(wanted), strict=True))
    assert pairs
    for one, other in pairs:
        one, other = host(one), host(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
        if other.dtype.kind in "fc":
            np.testing.assert_array_equal(np.signbit(one.real), np.signbit(other.real))


def leaf(data, device, **options):
    """A trainable leaf."""
    return Variable(data, requires_grad=True, device=device, **options)


def constant(data, device):
    """A constant on a device; plain numbers of the host stay as they are."""
    return data if device == "cpu" else Variable(data, device=device)


def on_both(program):
    """The results of a program on the host, by NumPy alone, and on the device."""
    with od.ops.use_kernels("numpy"):
        return program("cpu"), program(DEVICE)


def assert_same_on_both(program):
    """A program of ``device`` has equal results on host and device, there on the device."""
    wanted, got = on_both(program)
    assert_equal_bits(got, wanted)
    return got


def place(x, backend, index=0):
    """Copy arrays to the device, in nests and cotangents too."""
    if isinstance(x, np.ndarray):
        return backend.to_device(x, index)
    if isinstance(x, np.generic):  # results without axes are arrays there
        return backend.to_device(np.asarray(x), index)
    if type(x) is MultiOutput:
        return MultiOutput({k: place(part, backend, index) for k, part in x.parts.items()})
    return type(x)(place(i, backend, index) for i in x) if type(x) in (tuple, list) else x


def difference(host, device, backend):
    """Return how a result of the device differs from that of the CPU; None if it does not."""
    if isinstance(host, (tuple, list)):
        if len(host) != len(device):
            return f"{len(device)} results instead of {len(host)}"
        pairs = zip(host, device, strict=True)
        return next((d for a, b in pairs if (d := difference(a, b, backend)) is not None), None)
    if host is None or (
        isinstance(host, (int, float, complex)) and not isinstance(host, np.generic)
    ):
        return None if host is device or host == device else f"{device!r} instead of {host!r}"
    if type(device) is not backend.array_type:
        return f"a result of type {type(device).__name__}"
    host, device = np.asarray(host), backend.to_host(device)
    if (host.dtype, host.shape) != (device.dtype, device.shape):
        return f"{device.dtype}{device.shape} instead of {host.dtype}{host.shape}"
    return None if host.tobytes() == device.tobytes() else f"{device} instead of {host}"


# ------------------------------------------------------------------ the workloads of benchmarks


def _dense(rng, *sizes):
    pairs = itertools.pairwise(sizes)
    return [a for n, m in pairs for a in (rng.standard_normal((n, m)) * n**-0.5, np.zeros(m))]


def parameters_of(name):
    """The parameters that a workload starts from, with fewer numbers than in benchmarks."""
    rng = np.random.RandomState(0)
    sizes = {"W1": (2, 16, 1), "W2": (784, 32, 10), "W3": (784, 24, 16, 10), "digits": (64, 32, 10)}
    if name in sizes:
        found = _dense(rng, *sizes[name])
    elif name in ("W4", "W4m"):
        found = [rng.standard_normal(1000)]
    elif name == "W6":
        found = [rng.standard_normal((16, 48)) * 0.25, rng.standard_normal((16, 16)) * 0.25]
    elif name == "W7":
        found = [rng.standard_normal((6, 1, 5, 5)) * 0.2, np.zeros(6)]
        found += [rng.standard_normal((16, 6, 5, 5)) * 0.08, np.zeros(16)]
        found += _dense(rng, 400, 24, 10)
    return [np.asarray(a, np.float32) for a in found]


def batch_of(name):
    """The arguments of a step."""
    rng = np.random.RandomState(1)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    if name == "W1":
        x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
        return x, np.array([[0], [1], [1], [0]], np.float32)
    if name in ("W4", "W4m"):
        return (normal(1000),)
    if name == "W6":
        return normal(2, 7, 16), normal(2, 7, 16)
    if name == "W7":
        return normal(2, 1, 28, 28), rng.randint(0, 10, 2)
    return normal(8, 64 if name == "digits" else 784), rng.randint(0, 10, 8)


def _chain(name, x, c):
    if name == "W4m":
        h = x
        for _ in range(4):
            h = ops.relu(h * c + x) * 0.5 - c
        return h
    h = ops.tanh(x * c + x)
    h = ops.exp(ops.sqrt(h * h + 1.0) * 0.5) - c
    h = ops.sigmoid(ops.sin(h) * x + c)
    h = ops.log(h + 1.0)
    return ops.relu(h * h - 0.1) / 2.0 + x


def loss_of(name, p, x, *y):
    """The loss of a workload."""
    if name in ("W4", "W4m"):
        return ops.sum(_chain(name, p[0], x))
    if name == "W6":
        q, k, v = ops.transpose(ops.reshape(x @ p[0], (2, 7, 3, 2, 8)), (2, 0, 3, 1, 4))
        a = ops.softmax(q @ ops.swapaxes(k, -1, -2) * 8**-0.5, axis=-1)
        joined = ops.reshape(ops.transpose(a @ v, (0, 2, 1, 3)), (2, 7, 16))
        return od.losses.mean_squared_error(joined @ p[1], *y)
    if name == "W7":
        for k, padding in ((0, 2), (2, 0)):
            h = ops.relu(ops.conv2d(x, p[k], p[k + 1], padding=padding))
            x = ops.max_pool2d(h, window=2)
        x, p = ops.reshape(x, (x.shape[0], -1)), p[4:]
    activation = ops.tanh if name == "W1" else ops.relu
    for k in range(0, len(p) - 2, 2):
        x = activation(x @ p[k] + p[k + 1])
    x = x @ p[-2] + p[-1]
    loss = od.losses.mean_squared_error if name == "W1" else od.losses.cross_entropy
    return loss(x, *y)


def train(name, device, steps=3):
    """Losses, all gradients, parameters and optimizer states of some steps of a workload."""
    p = [leaf(a, device, name=f"p{k}") for k, a in enumerate(parameters_of(name))]
    batch = [constant(a, device) for a in batch_of(name)]
    rate = 1e-4 if name in ("W4", "W4m") else 0.01
    adam = name == "digits"
    optimizer = od.optim.Adam(p, rate) if adam else od.optim.SGD(p, rate, momentum=0.9)
    losses, gradients = [], []
    for _ in range(steps):
        with GradientTape() as tape:
            loss = loss_of(name, p, *batch)
        tape.backward(loss)
        losses.append(loss.detach())
        gradients.append([v.grad for v in p])
        optimizer.step()
        optimizer.zero_grad()
    states = [{n: s[n] for n in sorted(s)} for s in optimizer.state_dict()["state"]]
    return {"losses": losses, "gradients": gradients, "parameters": p, "states": states}


# ------------------------------------------------------------------ a decoder


def decoder_weights(vocabulary=11, width=16, layers=2):
    """Weights of a small decoder."""
    rng = np.random.RandomState(3)

    def normal(*shape):
        return (rng.standard_normal(shape) * 0.2).astype(np.float32)

    return {
        "embedding": normal(vocabulary, width),
        "layers": [
            {
                "norm": np.ones(width, np.float32),
                "qkv": normal(width, 3 * width),
                "out": normal(width, width),
                "up": normal(width, 2 * width),
                "down": normal(2 * width, width),
            }
            for _ in range(layers)
        ],
    }


def decoder_loss(weights, tokens, targets, rng=None):
    """The loss of a decoder with attention, norms, a gelu, and dropout from a generator."""
    n = tokens.shape[1]
    x = ops.embedding(tokens, weights["embedding"])
    for layer in weights["layers"]:
        h = ops.rms_norm(x, layer["norm"])
        q, k, v = ops.transpose(ops.reshape(h @ layer["qkv"], (-1, n, 3, 2, 8)), (2, 0, 3, 1, 4))
        a = ops.scaled_dot_product_attention(q, k, v, causal=True)
        x = x + ops.reshape(ops.transpose(a, (0, 2, 1, 3)), x.shape) @ layer["out"]
        if rng is not None:
            x = ops.dropout(x, rate=0.1, rng=rng)
        x = x + ops.gelu(x @ layer["up"]) @ layer["down"]
    logits = x @ ops.transpose(weights["embedding"])
    return od.losses.cross_entropy(ops.reshape(logits, (-1, logits.shape[-1])), targets)
