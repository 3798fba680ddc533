"""Index: the module of each op, and its NumPy functions, so that op modules load lazily.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

ROWS = {
    "odyssey.fft.primitives": "dft real_dft inverse_real_dft",
    "odyssey.linalg.decompositions": "lu qr_factors cholesky",
    "odyssey.linalg.determinants": "cofactor_slope cofactors det slogdet",
    "odyssey.linalg.eigenvalues": "eig eigvals",
    "odyssey.linalg.einstein_summation": "contract",
    "odyssey.linalg.hermitian_eigenvalues": "eigh eigvalsh eigenvalue_pullback",
    "odyssey.linalg.linear_systems": "solve_or_nan solve inv",
    "odyssey.linalg.matrix_functions": "expm sqrtm",
    "odyssey.linalg.matrix_products": "matmul",
    "odyssey.linalg.norms": "euclidean_norm",
    "odyssey.linalg.pseudo_inverses": "pinv least_squares",
    "odyssey.linalg.singular_values": "svd_factors svdvals matrix_rank singular_value_pullback",
    "odyssey.linalg.triangular_systems": "triangular_solve=solve_triangular",
    "odyssey.linalg.vector_products": "cross",
    "odyssey.losses.elementwise_binary_entropy": "binary_entropy binary_entropy_with_logits",
    "odyssey.losses.fused_softmax_cross_entropy": """
        softmax_cross_entropy softmax_cross_entropy_slope softmax_cross_entropy_mass
    """,
    "odyssey.losses.squared_error": "squared_error_mean",
    "odyssey.nn.activations.gelu": "gelu gelu_slope",
    "odyssey.nn.activations.piecewise": """
        hard_shrink=hardshrink soft_shrink=softshrink threshold relu relu6 leaky_relu prelu
        elu celu selu hard_sigmoid=hardsigmoid hard_swish=hardswish hard_tanh=hardtanh
    """,
    "odyssey.nn.activations.smooth": """
        sigmoid=expit log_sigmoid=logsigmoid=log_expit softplus silu=swish mish softsign
        silu_slope mish_slope
    """,
    "odyssey.nn.activations.softmax": "softmax log_softmax softmax_pullback log_softmax_pullback",
    "odyssey.nn.attention.rotary_embedding": "rope",
    "odyssey.nn.attention.scaled_dot_product": "scaled_dot_product_attention attention_pullback",
    "odyssey.nn.convolution.conv": "conv1d conv2d conv3d convolution_input convolution_weight",
    "odyssey.nn.convolution.depthwise": "depthwise_conv2d depthwise_separable_conv2d",
    "odyssey.nn.convolution.unfold": "unfold fold",
    "odyssey.nn.embedding_layers": "embedding embedding_pullback",
    "odyssey.nn.linear_layers": "linear",
    "odyssey.nn.normalization.layer_norm": "norm_pullback norm_weight_pullback rms_norm layer_norm",
    "odyssey.nn.pooling.average_pooling": """
        avg_pool_pullback avg_pool1d avg_pool2d=avgpool2d avg_pool3d
        global_avg_pool2d=global_avgpool2d
    """,
    "odyssey.nn.pooling.max_pooling": """
        max_pool_pullback max_pool_pushforward max_pool_indices max_pool1d
        max_pool2d=maxpool2d max_pool3d
    """,
    "odyssey.nn.recurrent.recurrence": "recurrent_states recurrent_pullback",
    "odyssey.nn.resampling.axis_resampling": "sampled",
    "odyssey.ops.elementwise.arithmetic": """
        add subtract=sub multiply=mul divide=div negative=neg square maximum minimum fmax
        fmin
    """,
    "odyssey.ops.elementwise.choice": """
        where keep_where equal not_equal greater greater_equal less less_equal logical_and
        logical_or logical_not logical_xor isfinite isnan isinf bitwise_and bitwise_or
        bitwise_xor invert
    """,
    "odyssey.ops.elementwise.clipping": "clip",
    "odyssey.ops.elementwise.complex_numbers": "absolute=abs fabs sign conj real imag angle",
    "odyssey.ops.elementwise.elementary": """
        power=pow power_slope power_log exp log exp2 expm1 log2 log10 log1p sqrt rsqrt cbrt
        reciprocal tanh power_share logaddexp logaddexp2
    """,
    "odyssey.ops.elementwise.non_finite": "nan_to_num",
    "odyssey.ops.elementwise.rounding": """
        floor ceil rint trunc fix round floor_divide mod=remainder fmod
    """,
    "odyssey.ops.elementwise.signs": "copysign heaviside",
    "odyssey.ops.elementwise.trigonometry": """
        sin cos tan sinh cosh deg2rad=radians rad2deg=degrees arcsin=asin arccos=acos
        arctan=atan arcsinh=asinh arccosh=acosh arctanh=atanh direction hypot arctan2=atan2
        sine_quotient sinc
    """,
    "odyssey.ops.random.philox": """
        philox_uniform philox_normal philox_dropout philox_integers philox_gamma
    """,
    "odyssey.ops.reductions.convolution": "convolve",
    "odyssey.ops.reductions.cumulative": "linear_recurrence cumsum reverse_cumsum cumprod",
    "odyssey.ops.reductions.cumulative_extremes": "running_argmax running_argmin logcumsumexp",
    "odyssey.ops.reductions.histograms": "bin_numbers",
    "odyssey.ops.reductions.interpolation": "searchsorted piecewise_linear",
    "odyssey.ops.reductions.logsumexp": "logsumexp",
    "odyssey.ops.reductions.product": "prod prod_others",
    "odyssey.ops.reductions.quantiles": "median quantile percentile",
    "odyssey.ops.reductions.reduce": "sum mean max min argmax argmin any all sum_to",
    "odyssey.ops.reductions.variance": "var over_length std",
    "odyssey.ops.structure.arrangement": "roll",
    "odyssey.ops.structure.dynamic": "dynamic_slice dynamic_update_slice update_rows",
    "odyssey.ops.structure.gathering": "take add_taken take_along_axis add_along_axis",
    "odyssey.ops.structure.indexing": "getitem add_at setitem",
    "odyssey.ops.structure.joining": "concatenate",
    "odyssey.ops.structure.placing": "put_along_axis",
    "odyssey.ops.structure.runtime_assert": "demanded",
    "odyssey.ops.structure.segments": "segment_max segment_min segment_softmax",
    "odyssey.ops.structure.shape": """
        identity=positive astype reshape transpose matrix_transpose broadcast_to
    """,
    "odyssey.ops.structure.sorting": "argsort sort argtopk",
    "odyssey.special.bessel_functions": """
        i0 i1 i0e i1e bessel_quotient j0 j1 y0 y1 k0 k1 k0e k1e bessel_j_quotient
    """,
    "odyssey.special.beta_function": "betaln beta",
    "odyssey.special.entropy_terms": "logit xlogy xlog1py entr rel_entr kl_div",
    "odyssey.special.error_functions": "erf erfc",
    "odyssey.special.gamma_function": "gammaln=lgamma gamma",
    "odyssey.special.incomplete_gamma_beta": "gammainc gammaincc betainc",
    "odyssey.special.normal_distribution": "ndtr log_ndtr inverse_mills_ratio ndtri erfinv erfcinv",
    "odyssey.special.polygamma_functions": "digamma=psi digamma_derivative",
    "odyssey.special.relative_exponential": "exprel exponential_moment",
    "odyssey.special.scaled_erfc": "erfcx scaled_erfc_integral",
    "odyssey.special.zeta_function": "zeta",
}
"""Rows by family; behind ``=`` their other names."""

COMPOSITES = {
    "odyssey.fft.fft_convolution": "fftconvolve",
    "odyssey.fft.frequencies": "fftshift ifftshift fftfreq rfftfreq",
    "odyssey.fft.multidimensional": "fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2",
    "odyssey.fft.one_dimensional": "fft ifft rfft irfft hfft ihfft",
    "odyssey.linalg.covariance": "cov corrcoef",
    "odyssey.linalg.decompositions": "qr",
    "odyssey.linalg.determinants": "logdet",
    "odyssey.linalg.einstein_summation": "einsum",
    "odyssey.linalg.linear_systems": "tensorsolve tensorinv",
    "odyssey.linalg.matrix_assembly": "adjoint=mH diag_embed block_diag",
    "odyssey.linalg.matrix_powers": "multi_dot matrix_power",
    "odyssey.linalg.matrix_products": "dot vdot inner outer tensordot",
    "odyssey.linalg.norms": "norm vector_norm matrix_norm cond",
    "odyssey.linalg.pseudo_inverses": "lstsq",
    "odyssey.linalg.singular_values": "svd",
    "odyssey.linalg.triangular_systems": "cho_solve",
    "odyssey.linalg.vector_products": "vecdot kron",
    "odyssey.nn.activations.gated_linear_units": "glu geglu swiglu",
    "odyssey.nn.activations.piecewise": "tanh_shrink=tanhshrink",
    "odyssey.nn.activations.softmax": "softmin",
    "odyssey.nn.attention.multi_head": "multi_head_attention",
    "odyssey.nn.convolution.conv_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "odyssey.nn.distances": "cosine_similarity pairwise_distance cdist pdist",
    "odyssey.nn.dropout_layers": "dropout dropout1d dropout2d dropout3d",
    "odyssey.nn.embedding_layers": "embedding_bag",
    "odyssey.nn.linear_layers": "bilinear",
    "odyssey.nn.normalization.batch_norm": "batch_norm",
    "odyssey.nn.normalization.group_norm": "group_norm instance_norm",
    "odyssey.nn.normalization.local_response_norm": "local_response_norm",
    "odyssey.nn.normalization.lp_normalize": "normalize",
    "odyssey.nn.pooling.adaptive_pooling": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d
    """,
    "odyssey.nn.pooling.lp_pooling": "lp_pool1d lp_pool2d lp_pool3d",
    "odyssey.nn.pooling.unpooling": "max_unpool1d max_unpool2d max_unpool3d",
    "odyssey.nn.recurrent.layers": "rnn_cell rnn lstm_cell lstm gru_cell gru",
    "odyssey.nn.resampling.grid_sampling": "grid_sample affine_grid",
    "odyssey.nn.resampling.interpolation": "interpolate",
    "odyssey.nn.resampling.pixel_shuffle": "pixel_shuffle pixel_unshuffle channel_shuffle",
    "odyssey.ops.random.distributions": """
        random_uniform random_normal random_integers random_bernoulli random_categorical
        random_permutation random_exponential random_gamma
    """,
    "odyssey.ops.reductions.calculus": "diff trapezoid gradient",
    "odyssey.ops.reductions.convolution": "correlate",
    "odyssey.ops.reductions.cumulative_extremes": "cummax cummin",
    "odyssey.ops.reductions.histograms": "bincount histogram digitize",
    "odyssey.ops.reductions.interpolation": "interp",
    "odyssey.ops.reductions.moments": "ptp average",
    "odyssey.ops.reductions.nan_reductions": """
        nansum nanprod nancumsum nancumprod nanmean nanvar nanstd nanmax nanmin nanmedian
        nanquantile nanpercentile
    """,
    "odyssey.ops.reductions.polynomials": "polyval vander ediff1d unwrap",
    "odyssey.ops.structure.arrangement": "flip flipud fliplr rot90 rollaxis",
    "odyssey.ops.structure.creation": "zeros_like ones_like full_like",
    "odyssey.ops.structure.diagonals": "diagonal diag trace tril triu",
    "odyssey.ops.structure.editing": "delete insert resize broadcast_arrays meshgrid block",
    "odyssey.ops.structure.gathering": "one_hot",
    "odyssey.ops.structure.joining": """
        atleast_1d atleast_2d atleast_3d append column_stack dstack stack array vstack
        hstack
    """,
    "odyssey.ops.structure.masking": "masked_fill masked_select compress extract choose select",
    "odyssey.ops.structure.padding": "pad",
    "odyssey.ops.structure.placing": """
        index_select index_add index_copy put gather scatter scatter_add
    """,
    "odyssey.ops.structure.repeating": "tile repeat",
    "odyssey.ops.structure.segments": "segment_sum segment_mean",
    "odyssey.ops.structure.sequences": "linspace",
    "odyssey.ops.structure.shape": "swapaxes moveaxis ravel squeeze expand_dims",
    "odyssey.ops.structure.sorting": "topk kthvalue partition argpartition unique",
    "odyssey.ops.structure.splitting": "array_split split unstack hsplit vsplit dsplit",
    "odyssey.special.gamma_function": "multigammaln",
    "odyssey.special.log_sum_exp": "weighted_logsumexp",
    "odyssey.special.polygamma_functions": "polygamma",
}
"""Composites by family, likewise."""

LOSSES = {
    "odyssey.losses.classification": """
        binary_cross_entropy cross_entropy focal hinge kl_divergence nll
    """,
    "odyssey.losses.gradients": """
        LossAndGrad bce_loss_and_grad ce_loss_and_grad compute_bce_gradient
        compute_ce_gradient compute_gradient compute_mse_gradient mse_loss_and_grad
    """,
    "odyssey.losses.likelihoods": "gaussian_nll poisson_nll",
    "odyssey.losses.margins": """
        hinge_embedding margin_ranking multi_margin multilabel_margin multilabel_soft_margin
        soft_margin
    """,
    "odyssey.losses.metric_learning": "cosine_embedding triplet_margin",
    "odyssey.losses.regression": "huber log_cosh mean_absolute_error mean_squared_error smooth_l1",
    "odyssey.losses.temporal_classification": "ctc",
}
"""What ``odyssey.losses`` hands on, by file."""

OPTIMIZERS = {
    "odyssey.optim.adadelta": "Adadelta adadelta",
    "odyssey.optim.adafactor": "Adafactor adafactor",
    "odyssey.optim.adagrad": "AdaGrad adagrad",
    "odyssey.optim.adam": "Adam AdamW adam adamw",
    "odyssey.optim.adamax": "Adamax adamax",
    "odyssey.optim.lars": "LARS lars",
    "odyssey.optim.lion": "Lion lion",
    "odyssey.optim.muon": "Muon muon",
    "odyssey.optim.nadam": "NAdam nadam",
    "odyssey.optim.radam": "RAdam radam",
    "odyssey.optim.rmsprop": "RMSprop rmsprop",
    "odyssey.optim.sgd": "SGD sgd",
}
"""What ``odyssey.optim`` hands on beside its own, by file."""

NUMPY = """
    absolute add all angle any append arccos arccosh arcsin arcsinh arctan arctan2 arctanh
    argmax argmin argpartition argsort array_split atleast_1d atleast_2d atleast_3d average
    bincount bitwise_and bitwise_or bitwise_xor block broadcast_arrays broadcast_to cbrt ceil
    cholesky=linalg.cholesky choose clip column_stack compress concatenate cond=linalg.cond
    conj=conjugate convolve copysign corrcoef correlate cos cosh cov cross cumprod cumsum
    deg2rad=deg2rad=radians delete det=linalg.det diag diagonal diff digitize divide dot dsplit
    dstack ediff1d eig=linalg.eig eigh=linalg.eigh eigvals=linalg.eigvals
    eigvalsh=linalg.eigvalsh einsum equal exp exp2 expand_dims expm1 extract fabs fft=fft.fft
    fft2=fft.fft2 fftfreq=fft.fftfreq fftn=fft.fftn fftshift=fft.fftshift fix flip fliplr flipud
    floor floor_divide fmax fmin fmod full_like gradient greater greater_equal heaviside
    hfft=fft.hfft histogram hsplit hstack hypot identity=positive ifft=fft.ifft ifft2=fft.ifft2
    ifftn=fft.ifftn ifftshift=fft.ifftshift ihfft=fft.ihfft imag inner insert interp
    inv=linalg.inv invert irfft=fft.irfft irfft2=fft.irfft2 irfftn=fft.irfftn isfinite isinf
    isnan kron less less_equal linspace log log10 log1p log2 logaddexp logaddexp2 logical_and
    logical_not logical_or logical_xor lstsq=linalg.lstsq matmul matrix_norm=linalg.matrix_norm
    matrix_power=linalg.matrix_power matrix_rank=linalg.matrix_rank matrix_transpose
    max=max=amax maximum mean median meshgrid min=min=amin minimum mod=remainder moveaxis
    multi_dot=linalg.multi_dot multiply nan_to_num nancumprod nancumsum nanmax nanmean nanmedian
    nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar negative norm=linalg.norm
    not_equal ones_like outer pad partition percentile pinv=linalg.pinv polyval power prod ptp
    qr=linalg.qr quantile rad2deg=rad2deg=degrees ravel real reciprocal repeat reshape resize
    rfft=fft.rfft rfft2=fft.rfft2 rfftfreq=fft.rfftfreq rfftn=fft.rfftn rint roll rollaxis rot90
    round=round=around searchsorted select sign sin sinc sinh slogdet=linalg.slogdet
    solve=linalg.solve sort split sqrt square squeeze stack std subtract sum svd=linalg.svd
    svdvals=linalg.svdvals swapaxes take take_along_axis tan tanh tensordot
    tensorinv=linalg.tensorinv tensorsolve=linalg.tensorsolve tile trace transpose trapezoid
    tril triu trunc unique unstack unwrap vander var vdot vecdot=vecdot=linalg.vecdot
    vector_norm=linalg.vector_norm vsplit vstack where zeros_like
"""
"""Ops; behind ``=`` NumPy's functions that mean them on Variables, unless named alike."""
