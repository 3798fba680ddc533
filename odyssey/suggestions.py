"""Words of other libraries, and what is written here in their place: for messages only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "MISSING_ATTRIBUTES",
    "MISSING_NAMES",
    "MISSING_OPS",
    "MissingAttribute",
    "did_you_mean",
    "keyword_hint",
]

_KEYWORDS = {
    "dim": "axis",
    "dims": "axis",
    "keepdim": "keepdims",
    "input": "the first array, which comes by position",
    "other": "the second array, which comes by position",
    "lr": "learning_rate",
    "beta1": "betas",
    "beta2": "betas",
    "epsilon": "eps",
    "kernel_size": "window",
    "norm_type": "p",
    "output_size": "size",
    "scale_factor": "scale",
    "decay": "weight_decay",
    "attn_mask": "mask",
    "generator": "rng",
    "is_causal": "causal",
    "normalized_shape": "axis",
    "num_groups": "groups",
    "padding_idx": "padding_index",
    "init_scale": "initial",
    "growth_factor": "growth",
    "backoff_factor": "backoff",
    "growth_interval": "interval",
    "sparse": "sparse_grad=True of the table's Variable",
}

MISSING_ATTRIBUTES = {
    "add_": "v.assign(v + x)",
    "base": "v.data.base",
    "bfloat16": "v.astype('bfloat16')",
    "bool": "v.astype(bool)",
    "byteswap": "v.numpy().byteswap()",
    "choose": "ops.where(mask, x, v)",
    "clone": "ops.identity(v)",
    "compress": "v[mask]",
    "conjugate": "v.conj()",
    "contiguous": "v: arrays here need no such call",
    "copy": "ops.identity(v)",
    "copy_": "v.assign(x)",
    "cpu": "v.to('cpu')",
    "cuda": "v.to('cuda')",
    "detach_": "v = v.detach()",
    "dim": "v.ndim",
    "div_": "v.assign(v / x)",
    "double": "v.astype(np.float64)",
    "expand": "ops.broadcast_to(v, shape)",
    "fill": "v.assign(x)",
    "fill_": "v.assign(x)",
    "flags": "v.data.flags",
    "flat": "v.ravel()",
    "float": "v.astype(np.float32)",
    "grad_fn": "tape.explain(output, v)",
    "half": "v.astype(np.float16)",
    "int": "v.astype(np.int32)",
    "is_cuda": "v.device",
    "itemsize": "v.dtype.itemsize",
    "long": "v.astype(np.int64)",
    "mT": "v: of matrices that is ops.matrix_transpose(v)",
    "mm": "v @ x",
    "mul_": "v.assign(v * x)",
    "nbytes": "v.data.nbytes",
    "nonzero": "np.nonzero(v)",
    "numel": "v.size",
    "permute": "v.transpose(axes)",
    "register_hook": "tape.on_gradient(v, function)",
    "requires_grad_": "v.requires_grad = True",
    "retain_grad": "tape.gradient(output, v)",
    "setflags": "v: its data is read-only",
    "strides": "v.data.strides",
    "sub_": "v.assign(v - x)",
    "t": "v.T",
    "tobytes": "v.numpy().tobytes()",
    "tolist": "v.numpy().tolist()",
    "unsqueeze": "ops.expand_dims(v, axis)",
    "view": "v.reshape(shape)",
    "zero_": "v.assign(0)",
}
"""What other libraries call on their arrays, and how it is written here."""

# What makes an array of no other array is no op: NumPy's are taken as they are.
_MAKERS = ("arange", "empty", "eye", "full", "geomspace", "logspace", "ones", "tri", "zeros")

MISSING_OPS = {
    **{name: f"write np.{name}: ops take NumPy's arrays as they are" for name in _MAKERS},
    "cat": "write concatenate",
    "dim": "write v.ndim",
    "mm": "write matmul",
    "permute": "write transpose",
    "rand": "write random_uniform",
    "randn": "write random_normal",
    "unsqueeze": "write expand_dims",
    "view": "write reshape",
}
"""What is looked for among the ops, and what to do instead."""

_LAYERS = {
    "Linear": "nn.linear(x, weight, bias)",
    "Conv1d": "nn.conv1d(x, weight, bias)",
    "Conv2d": "nn.conv2d(x, weight, bias)",
    "Conv3d": "nn.conv3d(x, weight, bias)",
    "ConvTranspose2d": "nn.conv_transpose2d(x, weight, bias)",
    "Embedding": "nn.embedding(indices, weight)",
    "LayerNorm": "nn.layer_norm(x, weight, bias)",
    "RMSNorm": "nn.rms_norm(x, weight)",
    "BatchNorm1d": "nn.batch_norm(x, mean, variance, weight, bias)",
    "BatchNorm2d": "nn.batch_norm(x, mean, variance, weight, bias)",
    "GroupNorm": "nn.group_norm(x, weight, bias, groups=n)",
    "MultiheadAttention": "nn.multi_head_attention(q, k, v, ...)",
    "RNN": "nn.rnn",
    "LSTM": "nn.lstm",
    "GRU": "nn.gru",
    "Dropout": "nn.dropout(x, rate=0.5)",
    "MaxPool2d": "nn.max_pool2d(x, window=2)",
    "AvgPool2d": "nn.avg_pool2d(x, window=2)",
    "ReLU": "nn.relu(x)",
    "GELU": "nn.gelu(x)",
    "Sigmoid": "nn.sigmoid(x)",
    "Tanh": "ops.tanh(x)",
    "Softmax": "nn.softmax(x)",
    "Flatten": "ops.reshape(x, (len(x), -1))",
    "MSELoss": "losses.mean_squared_error(predictions, targets)",
    "CrossEntropyLoss": "losses.cross_entropy(logits, targets)",
    "BCEWithLogitsLoss": "losses.binary_cross_entropy(logits, targets, from_logits=True)",
}

_PARAMETERS = "od.Variable(data, requires_grad=True)"

MISSING_NAMES = {
    "odyssey": {
        "manual_seed": "write od.seed(number), or pass rng=od.Generator(number)",
        "set_seed": "write od.seed(number), or pass rng=od.Generator(number)",
        "tensor": "write od.Variable(data)",
        "Tensor": "write od.Variable(data)",
        "Parameter": f"write {_PARAMETERS}",
        "Module": "write a function of a tree of Variables",
        "jit": "write od.compile",
        "function": "write od.compile",
        "random": "write od.Generator(seed), whose draws are called as NumPy's",
        "from_numpy": "write od.Variable(data)",
        "IndexedSlices": "write od.SparseRows",
        "no_gradient": "write od.no_grad()",
        "gradient": "write od.grad, or od.ops.gradient for np.gradient",
        "cuda": "write od.devices.cuda(), which raises DeviceError if there is no card",
        "device": "write od.devices.cpu, or od.devices.cuda()",
        "Device": "write od.devices.Device",
        "enable_grad": "write a with block of od.GradientTape",
        "jacfwd": "write od.jacobian",
        "jacrev": "write od.jacobian",
        "DataLoader": "write od.batches(arrays, size)",
        "load_file": "write od.load_tensors",
        "save_file": "write od.save_tensors",
        "safe_open": "write od.load_tensors(path, mmap=True), or od.list_tensors",
        "lax": "write od.scan, od.cond and od.while_loop",
        "numpy": "write od.ops, or NumPy's own functions on Variables",
        "float32": "write np.float32",
        "float64": "write np.float64",
        "tree_map": "write od.tree.map_tree",
    },
    "odyssey.nn": {
        **{name: f"layers are functions here, write od.{how}" for name, how in _LAYERS.items()},
        "Module": "write a function of a tree of Variables",
        "Parameter": f"write {_PARAMETERS}",
        "Sequential": "write a function that calls layers",
        "ModuleList": "write a list of trees of Variables",
        "functional": "write od.nn: its layers are functions",
        "init": "write od.init",
        "utils": "write od.optim.clip_grad_norm and its like",
    },
    "odyssey.optim": {
        "lr_scheduler": "write od.optim.StepLR and its like",
        "Adagrad": "write AdaGrad",
        "SparseAdam": "write Adam(params, lazy=True), with od.Variable(..., sparse_grad=True)",
        "RMSProp": "write RMSprop",
        "AveragedModel": "write EMA",
        "GradScaler": "write LossScaler",
        "DynamicLossScale": "write LossScaler",
        "LinearLR": "write WarmupLR",
        "chain": "write a rule, see od.optim.rule_of",
        "apply_updates": "write rule.update(grads, state, params), which returns new parameters",
    },
    "optimizer": {
        "param_groups": "write groups, whose settings are attributes",
        "lr": "write learning_rate",
        "defaults": "write settings()",
        "add_param_group": "make an optimizer of all groups",
        "state": "write state_dict()['state']",
        "minimize": "write tape.backward(loss) and step()",
        "apply_gradients": "write step(), which reads the gradients of its parameters",
        "init": "write rule(), a pure pair of init and update",
        "update": "write rule(), a pure pair of init and update",
    },
    "scaler": {
        "unscale_": "write unscale(optimizer)",
        "update": "step(optimizer) updates the scale",
        "get_scale": "write value",
    },
}
"""Names that are looked for in modules, optimizers and scalers, and what to do instead."""


def keyword_hint(names: Iterable[str]) -> str:
    """Return a hint on keywords that other libraries use; empty if none is known.

    >>> keyword_hint(["dim"])
    '; dim is called axis here'
    """
    return "".join(
        f"; {name} is called {_KEYWORDS[name]} here" for name in names if name in _KEYWORDS
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint on similar names; empty if there are none.

    >>> did_you_mean("sotfmax", ["softmax", "relu"])
    '; did you mean softmax?'
    """
    import difflib

    near = difflib.get_close_matches(name, names)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class MissingAttribute:
    """An attribute that is not there, and whose error says what to write in its place.

    A ``__getattr__`` would do the same, but make Python search longer for every other attribute.
    """

    __slots__ = ("name", "words")

    def __init__(self, name: str, words: str) -> None:
        self.name = name
        self.words = words

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(
            f"{owner.__name__} has no attribute {self.name!r}; write {self.words}",
            name=self.name,
            obj=instance,
        )


def __dir__() -> list[str]:
    return sorted(__all__)
