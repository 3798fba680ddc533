"""Names of PyTorch for ops and objects, for the reference pages."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PEER_OBJECTS", "TORCH_NAMES"]

_EQUAL_NAMES = {
    "torch.fft": """
        fftshift ifftshift fftfreq rfftfreq fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2
        fft ifft rfft irfft hfft ihfft
    """,
    "torch": """
        cov corrcoef logdet einsum adjoint diag_embed block_diag matmul dot vdot inner outer
        tensordot cross kron sigmoid cdist add square maximum minimum fmax fmin where
        logical_and logical_or logical_not logical_xor isfinite isnan isinf bitwise_and
        bitwise_or bitwise_xor sign conj real imag angle exp log exp2 expm1 log2 log10 log1p
        sqrt rsqrt reciprocal tanh logaddexp logaddexp2 nan_to_num floor ceil trunc round
        floor_divide fmod copysign heaviside sin cos tan sinh cosh deg2rad rad2deg hypot
        sinc diff trapezoid gradient cumsum cumprod logcumsumexp cummax cummin bincount
        histogram searchsorted logsumexp nansum nanmean nanmedian nanquantile vander prod
        median quantile sum mean argmax argmin any all var std roll flip flipud fliplr rot90
        zeros_like ones_like full_like diagonal diag trace tril triu meshgrid atleast_1d
        atleast_2d atleast_3d column_stack dstack stack vstack hstack masked_fill
        masked_select index_select index_add index_copy gather scatter scatter_add tile
        linspace reshape broadcast_to swapaxes ravel squeeze argsort sort topk kthvalue
        unique hsplit vsplit dsplit i0 logit xlogy erf erfc erfinv digamma polygamma
    """,
    "torch.linalg": """
        lu cholesky qr det slogdet eig eigvals eigh eigvalsh solve inv tensorsolve tensorinv
        multi_dot matrix_power norm vector_norm matrix_norm cond pinv lstsq svdvals
        matrix_rank svd vecdot
    """,
    "torch.nn.functional": """
        glu gelu threshold relu relu6 leaky_relu prelu elu celu selu softplus silu mish
        softsign softmax log_softmax softmin scaled_dot_product_attention conv1d conv2d
        conv3d conv_transpose1d conv_transpose2d conv_transpose3d unfold fold
        cosine_similarity pairwise_distance pdist dropout dropout1d dropout2d dropout3d
        embedding embedding_bag linear bilinear batch_norm group_norm instance_norm rms_norm
        layer_norm local_response_norm normalize adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d
        max_pool3d max_unpool1d max_unpool2d max_unpool3d grid_sample affine_grid
        interpolate pixel_shuffle pixel_unshuffle channel_shuffle one_hot pad kl_div
    """,
    "torch.special": """
        i1 i0e i1e xlog1py entr multigammaln gammainc gammaincc ndtr log_ndtr ndtri erfcx
        zeta
    """,
}

TORCH_NAMES: Mapping[str, str] = {
    **{n: f"{room}.{n}" for room, names in _EQUAL_NAMES.items() for n in names.split()},
    "contract": "torch.einsum",
    "solve_or_nan": "torch.linalg.solve",
    "expm": "torch.linalg.matrix_exp",
    "euclidean_norm": "torch.linalg.vector_norm",
    "least_squares": "torch.linalg.lstsq",
    "triangular_solve": "torch.linalg.solve_triangular",
    "cho_solve": "torch.cholesky_solve",
    "binary_entropy": "torch.nn.functional.binary_cross_entropy",
    "binary_entropy_with_logits": "torch.nn.functional.binary_cross_entropy_with_logits",
    "softmax_cross_entropy": "torch.nn.functional.cross_entropy",
    "squared_error_mean": "torch.nn.functional.mse_loss",
    "hard_shrink": "torch.nn.functional.hardshrink",
    "soft_shrink": "torch.nn.functional.softshrink",
    "hard_sigmoid": "torch.nn.functional.hardsigmoid",
    "hard_swish": "torch.nn.functional.hardswish",
    "hard_tanh": "torch.nn.functional.hardtanh",
    "tanh_shrink": "torch.nn.functional.tanhshrink",
    "log_sigmoid": "torch.nn.functional.logsigmoid",
    "multi_head_attention": "torch.nn.MultiheadAttention",
    "depthwise_conv2d": "torch.nn.functional.conv2d",
    "global_avg_pool2d": "torch.nn.functional.adaptive_avg_pool2d",
    "rnn_cell": "torch.nn.RNNCell",
    "rnn": "torch.nn.RNN",
    "lstm_cell": "torch.nn.LSTMCell",
    "lstm": "torch.nn.LSTM",
    "gru_cell": "torch.nn.GRUCell",
    "gru": "torch.nn.GRU",
    "subtract": "torch.sub",
    "multiply": "torch.mul",
    "divide": "torch.div",
    "negative": "torch.neg",
    "equal": "torch.eq",
    "not_equal": "torch.ne",
    "greater": "torch.gt",
    "greater_equal": "torch.ge",
    "less": "torch.lt",
    "less_equal": "torch.le",
    "invert": "torch.bitwise_not",
    "clip": "torch.clamp",
    "absolute": "torch.abs",
    "fabs": "torch.abs",
    "power": "torch.pow",
    "rint": "torch.round",
    "fix": "torch.trunc",
    "mod": "torch.remainder",
    "arcsin": "torch.asin",
    "arccos": "torch.acos",
    "arctan": "torch.atan",
    "arcsinh": "torch.asinh",
    "arccosh": "torch.acosh",
    "arctanh": "torch.atanh",
    "arctan2": "torch.atan2",
    "random_uniform": "torch.rand",
    "random_normal": "torch.randn",
    "random_integers": "torch.randint",
    "random_bernoulli": "torch.bernoulli",
    "random_categorical": "torch.multinomial",
    "random_permutation": "torch.randperm",
    "random_exponential": "torch.Tensor.exponential_",
    "convolve": "torch.nn.functional.conv1d",
    "digitize": "torch.bucketize",
    "percentile": "torch.quantile",
    "max": "torch.amax",
    "min": "torch.amin",
    "broadcast_arrays": "torch.broadcast_tensors",
    "take": "torch.index_select",
    "take_along_axis": "torch.take_along_dim",
    "add_along_axis": "torch.Tensor.scatter_add",
    "getitem": "torch.Tensor.__getitem__",
    "add_at": "torch.Tensor.index_put",
    "setitem": "torch.Tensor.__setitem__",
    "concatenate": "torch.cat",
    "append": "torch.cat",
    "array": "torch.stack",
    "compress": "torch.masked_select",
    "extract": "torch.masked_select",
    "put_along_axis": "torch.Tensor.scatter",
    "repeat": "torch.repeat_interleave",
    "segment_max": "torch.segment_reduce",
    "segment_min": "torch.segment_reduce",
    "segment_sum": "torch.segment_reduce",
    "segment_mean": "torch.segment_reduce",
    "identity": "torch.Tensor.clone",
    "astype": "torch.Tensor.to",
    "transpose": "torch.permute",
    "matrix_transpose": "torch.Tensor.mT",
    "moveaxis": "torch.movedim",
    "expand_dims": "torch.unsqueeze",
    "partition": "torch.topk",
    "array_split": "torch.tensor_split",
    "split": "torch.tensor_split",
    "unstack": "torch.unbind",
    "j0": "torch.special.bessel_j0",
    "j1": "torch.special.bessel_j1",
    "y0": "torch.special.bessel_y0",
    "y1": "torch.special.bessel_y1",
    "k0": "torch.special.modified_bessel_k0",
    "k1": "torch.special.modified_bessel_k1",
    "k0e": "torch.special.scaled_modified_bessel_k0",
    "k1e": "torch.special.scaled_modified_bessel_k1",
    "gammaln": "torch.lgamma",
    "weighted_logsumexp": "torch.logsumexp",
}
"""The PyTorch function that computes what an op does, by name of the op. Signatures differ."""

_T = "PyTorch ``torch.%s``"
_J = "JAX ``jax.%s``"
_F = "TensorFlow ``tf.%s``"

PEER_OBJECTS: Mapping[str, str] = {
    "od.Variable": f"{_T % 'Tensor'} and ``torch.nn.Parameter``, {_F % 'Variable'}",
    "od.GradientTape": f"{_F % 'GradientTape'}; PyTorch records without one",
    "od.no_grad": _T % "no_grad",
    "od.autocast": _T % "autocast",
    "od.grad": f"{_J % 'grad'}, {_T % 'func.grad'}",
    "od.value_and_grad": f"{_J % 'value_and_grad'}, {_T % 'func.grad_and_value'}",
    "od.vjp": f"{_J % 'vjp'}, {_T % 'func.vjp'}",
    "od.jvp": f"{_J % 'jvp'}, {_T % 'func.jvp'}",
    "od.hvp": f"{_T % 'autograd.functional.hvp'}; in JAX ``jvp`` of ``grad``",
    "od.jacobian": f"{_J % 'jacrev'} and ``jax.jacfwd``, {_T % 'func.jacrev'}",
    "od.hessian": f"{_J % 'hessian'}, {_T % 'func.hessian'}",
    "od.checkpoint": f"{_J % 'checkpoint'}, {_T % 'utils.checkpoint.checkpoint'}",
    "od.stop_gradient": f"{_J % 'lax.stop_gradient'}, {_T % 'Tensor.detach'}",
    "od.custom_vjp": f"{_J % 'custom_vjp'}, {_T % 'autograd.Function'}",
    "od.scan": _J % "lax.scan",
    "od.cond": f"{_J % 'lax.cond'}, {_T % 'cond'}",
    "od.while_loop": _J % "lax.while_loop",
    "od.compile": f"{_T % 'compile'}, {_J % 'jit'}, {_F % 'function'}",
    "od.Dim": f"{_T % 'export.Dim'}",
    "od.Spec": f"{_J % 'ShapeDtypeStruct'}",
    "od.set_threads": _T % "set_num_threads",
    "od.get_threads": _T % "get_num_threads",
    "od.seed": _T % "manual_seed",
    "od.Generator": f"{_T % 'Generator'}, {_J % 'random.key'}",
    "od.save": _T % "save",
    "od.load": _T % "load",
    "od.save_tensors": "``safetensors.numpy.save_file``",
    "od.load_tensors": "``safetensors.numpy.load_file``",
    "od.list_tensors": "``safetensors.safe_open``",
    "od.Cache": "``transformers.StaticCache``",
    "od.batches": _T % "utils.data.DataLoader",
    "od.op": _T % "library.custom_op",
    "od.testing.check_gradients": f"{_T % 'autograd.gradcheck'}, {_J % 'test_util.check_grads'}",
    "od.tree.map_tree": _J % "tree.map",
    "od.tree.leaves": _J % "tree.leaves",
    "od.tree.flatten": _J % "tree.flatten",
    "od.tree.unflatten": _J % "tree.unflatten",
    "od.tree.ravel": f"{_J % 'flatten_util.ravel_pytree'}, {_T % 'nn.utils.parameters_to_vector'}",
    "od.optim.clip_grad_norm": (
        "limits the norm of each gradient by itself; PyTorch's ``clip_grad_norm_`` is "
        ":py:obj:`od.optim.clip_grad_global_norm <odyssey.optim.clip_grad_global_norm>`"
    ),
    "od.optim.clip_grad_global_norm": (
        f"{_T % 'nn.utils.clip_grad_norm_'}, Optax ``clip_by_global_norm``"
    ),
    "od.optim.clip_grad_value": f"{_T % 'nn.utils.clip_grad_value_'}, Optax ``clip``",
    "od.optim.SGD": _T % "optim.SGD",
    "od.optim.Adam": _T % "optim.Adam",
    "od.optim.AdamW": _T % "optim.AdamW",
    "od.optim.AdaGrad": _T % "optim.Adagrad",
    "od.optim.Adadelta": _T % "optim.Adadelta",
    "od.optim.Adafactor": _T % "optim.Adafactor",
    "od.optim.Adamax": _T % "optim.Adamax",
    "od.optim.Muon": _T % "optim.Muon",
    "od.optim.NAdam": _T % "optim.NAdam",
    "od.optim.RAdam": _T % "optim.RAdam",
    "od.optim.RMSprop": _T % "optim.RMSprop",
    "od.optim.LBFGS": _T % "optim.LBFGS",
    "od.optim.EMA": _T % "optim.swa_utils.AveragedModel",
    "od.optim.Optimizer": _T % "optim.Optimizer",
    "od.optim.StepLR": _T % "optim.lr_scheduler.StepLR",
    "od.optim.MultiStepLR": _T % "optim.lr_scheduler.MultiStepLR",
    "od.optim.ExponentialLR": _T % "optim.lr_scheduler.ExponentialLR",
    "od.optim.CosineAnnealingLR": _T % "optim.lr_scheduler.CosineAnnealingLR",
    "od.optim.OneCycleLR": _T % "optim.lr_scheduler.OneCycleLR",
    "od.optim.LambdaLR": _T % "optim.lr_scheduler.LambdaLR",
    "od.optim.ReduceLROnPlateau": _T % "optim.lr_scheduler.ReduceLROnPlateau",
    "od.optim.WarmupLR": _T % "optim.lr_scheduler.LinearLR",
    "od.losses.mean_squared_error": _T % "nn.functional.mse_loss",
    "od.losses.mean_absolute_error": _T % "nn.functional.l1_loss",
    "od.losses.binary_cross_entropy": (
        f"{_T % 'nn.functional.binary_cross_entropy'}, and "
        "``binary_cross_entropy_with_logits`` with ``from_logits=True``"
    ),
    "od.losses.cross_entropy": _T % "nn.functional.cross_entropy",
    "od.losses.nll": _T % "nn.functional.nll_loss",
    "od.losses.kl_divergence": _T % "nn.functional.kl_div",
    "od.losses.huber": _T % "nn.functional.huber_loss",
    "od.losses.smooth_l1": _T % "nn.functional.smooth_l1_loss",
    "od.losses.gaussian_nll": _T % "nn.functional.gaussian_nll_loss",
    "od.losses.poisson_nll": _T % "nn.functional.poisson_nll_loss",
    "od.losses.hinge_embedding": _T % "nn.functional.hinge_embedding_loss",
    "od.losses.margin_ranking": _T % "nn.functional.margin_ranking_loss",
    "od.losses.multi_margin": _T % "nn.functional.multi_margin_loss",
    "od.losses.multilabel_margin": _T % "nn.functional.multilabel_margin_loss",
    "od.losses.multilabel_soft_margin": _T % "nn.functional.multilabel_soft_margin_loss",
    "od.losses.soft_margin": _T % "nn.functional.soft_margin_loss",
    "od.losses.cosine_embedding": _T % "nn.functional.cosine_embedding_loss",
    "od.losses.triplet_margin": _T % "nn.functional.triplet_margin_loss",
    "od.losses.ctc": _T % "nn.functional.ctc_loss",
    "od.init.glorot_uniform": _T % "nn.init.xavier_uniform_",
    "od.init.glorot_normal": _T % "nn.init.xavier_normal_",
    "od.init.he_uniform": _T % "nn.init.kaiming_uniform_",
    "od.init.he_normal": _T % "nn.init.kaiming_normal_",
    "od.init.orthogonal": _T % "nn.init.orthogonal_",
    "od.init.truncated_normal": _T % "nn.init.trunc_normal_",
}
"""Names in other libraries by short name of an object, in reStructuredText."""
