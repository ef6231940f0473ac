"""What the database cannot say by itself: functions without a public name, what is not recorded and why, families."""

from __future__ import annotations

from collections.abc import Mapping

import torch

#: Operators that the database calls by a function of its own: what is called here. "own" is corpus/callables.py.
FUNCTIONS: Mapping[str, str] = {
    "item": "own.item",
    "equal": "own.equal",
    "allclose": "own.allclose",
    "T": "own.transposed",
    "H": "own.conjugate_transposed",
    "mT": "own.matrix_transposed",
    "mH": "own.matrix_conjugate_transposed",
    "einsum": "own.einsum",
    "where": "own.where",
    "polygamma": "own.polygamma",
    "special.polygamma": "own.special_polygamma",
    "embedding": "own.embedding",
    "embedding_bag": "own.embedding_bag",
    "native_batch_norm": "own.native_batch_norm",
    "native_layer_norm": "own.native_layer_norm",
    "native_group_norm": "own.native_group_norm",
    "_native_batch_norm_legit": "own.native_batch_norm_legit",
    "_batch_norm_with_update": "own.batch_norm_with_update",
    "zero_": "own.zero_",
    "resize_": "own.resize_",
    "linalg.eigh": "own.eigh",
    "linalg.eig": "own.eig",
    "linalg.eigvals": "own.eigvals",
    "linalg.svd": "own.svd",
    "svd": "own.old_svd",
    "linalg.qr": "own.qr",
    "qr": "own.old_qr",
    "linalg.lstsq": "own.lstsq",
    "scaled_dot_product_attention": "torch.nn.functional.scaled_dot_product_attention",
    **{
        name: f"torch.Tensor.{name}"
        for name in (
            *("contiguous", "sum_to_size", "expand", "expand_as", "to", "reshape_as", "view", "view_as", "repeat"),
            *("bfloat16", "bool", "byte", "char", "double", "float", "half", "int", "long", "short", "chalf"),
            *("new_zeros", "new_ones", "new_full", "unfold", "cfloat", "cdouble"),
        )
    },
}

#: Operators of which something else is looked at than what they give: what does not depend on signs and order.
DECOMPOSED = frozenset(
    ("linalg.eigh", "linalg.eig", "linalg.eigvals", "linalg.svd", "svd", "linalg.qr", "qr", "linalg.lstsq")
)

#: Operators of which only the first result is looked at: the others are for their own gradients to read.
FIRST_RESULT = frozenset(
    (
        *("native_batch_norm", "native_layer_norm", "native_group_norm", "_native_batch_norm_legit"),
        "_batch_norm_with_update",
    )
)

#: Arguments of which samples are left out: torch_npu refuses them, whatever the operator (see left_out.py), or what
#: comes of them is random.
REFUSED = {"memory_format": (torch.channels_last, torch.channels_last_3d), "dropout_p": (0.5,)}

#: Operators of which samples without elements are left out: what there is of them no device promises.
NEVER_EMPTY = DECOMPOSED | {"native_layer_norm"}
#: Parts of names of operators of which samples with NaN are left out: torch's own loops over degrees end before the
#: first turn there, and give memory as it is.
NEVER_NAN = ("_polynomial_",)
#: Operators that give places of maxima: torch_npu gives them as int32 (see left_out.py).
WITHOUT_PLACES = frozenset(("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool3d"))
#: Operators of which ``out=`` is not asked: under the mode that sees fallbacks torch gives it back as it was.
WITHOUT_OUT = frozenset(("linalg.matrix_rank",))
#: Operators whose further tensors have to be on the CPU.
ONE_TENSOR = frozenset(("tensor_split",))

#: Variants that call the same operator as another one, in another way.
VARIANTS_LEFT_OUT = frozenset(
    {
        ("linalg.lstsq", "grad_oriented"),
        ("linalg.pinv", "singular"),
    }
)

_RANDOM = "random: what it has to give is a distribution, which the suite of random operators looks at"
_EMPTY = "gives memory as it is: there is nothing to compare"
_CUDA = "compiles for CUDA, by CUDA's own compiler"
_SPARSE = "of sparse tensors, which torch_npu does not have"
_INNER = "an inner operator of one backend, which nobody calls"
_SCALED = "takes 8-bit formats, which the CPU reference has not in float64"
_NOT_DETERMINISTIC = "torch refuses it where deterministic algorithms are asked for, as they are when goldens are built"
_LARGE = "its samples there are large: the catalogue has smaller ones"
_NO_ORDER = "its samples come in an order that differs from process to process: the catalogue has its own"
_PYTHON = "computes with sizes in Python: no device takes part"

#: What is not recorded, and why.
LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "uniform"),
            *("rand_like", "randint", "randint_like", "randn", "randn_like", "rrelu", "alpha_dropout", "dropout"),
            *("dropout2d", "dropout3d", "feature_alpha_dropout", "fractional_max_pool2d", "fractional_max_pool3d"),
            *("pca_lowrank", "svd_lowrank", "multi_head_attention_forward"),
        ),
        _RANDOM,
    ),
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"), _EMPTY
    ),
    **dict.fromkeys(
        (
            *("jiterator_unary", "jiterator_binary", "jiterator_binary_return_by_ref"),
            *("jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args"),
        ),
        _CUDA,
    ),
    **dict.fromkeys(("sparse.sampled_addmm", "to_sparse", "sparse.mm", "_segment_reduce"), _SPARSE),
    **dict.fromkeys(
        (
            *("_efficient_attention_forward", "_flash_attention_forward", "hash_tensor", "_foreach_copy"),
            *("_foreach_zero", "_upsample_bilinear2d_aa", "native_dropout_backward"),
        ),
        _INNER,
    ),
    **dict.fromkeys(("slice_scatter", "ctc_loss"), _LARGE),
    **dict.fromkeys(("max_unpool1d", "max_unpool2d", "max_unpool3d"), _NOT_DETERMINISTIC),
    "kron": "its samples there are large, and torch's own fails on the CPU for some layouts",
    "triplet_margin_with_distance_loss": "takes a function, which no file can hold",
    "slice": "is what indexing calls; __getitem__ is recorded",
    **dict.fromkeys(("_scaled_mm", "_scaled_mm_v2"), _SCALED),
    "broadcast_shapes": _PYTHON,
    "meshgrid": _NO_ORDER,
    "resize_as_": "leaves new elements as memory has them, as resize_, which is recorded, does",
    "max_pool2d_with_indices_backward": "is what max_pool2d's gradient calls",
    "as_strided": "is about memory, which each layout has otherwise; as_strided_copy is recorded",
}

#: Families by the beginning of a name; the first that fits.
FAMILIES: tuple[tuple[str, str], ...] = (
    ("fft.", "fft"),
    ("linalg.", "linalg"),
    ("masked.", "masked"),
    ("special.", "special"),
    ("signal.", "creation"),
    ("_foreach", "foreach"),
    ("__getitem__", "other"),
    ("__rmatmul__", "other"),
    ("__", "arithmetic"),
)
#: The rest, by what the database says of where an operator is found or of its kind.
OTHERWISE: Mapping[str, str] = {
    "torch.nn.functional.": "network",
    "UnaryUfuncInfo": "elementwise",
    "BinaryUfuncInfo": "arithmetic",
    "ReductionOpInfo": "reduction",
    "ShapeFuncInfo": "movement",
    "OpInfo": "other",
}


def family(name: str, function: str, kind: str) -> str:
    """Return the family of an operator; ``kind`` is the class of its entry in the database."""
    if function.startswith("torch.nn.functional."):
        return OTHERWISE["torch.nn.functional."]
    found = next((given for prefix, given in FAMILIES if name.startswith(prefix)), "")
    return found or OTHERWISE.get(kind, OTHERWISE["OpInfo"])
