"""Parts of models with the settings that samples of single operators leave out, whole modules forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor as T  # noqa: N817
from torch import nn

from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.operators.calling import tensors
from pytest_ascend.run import inputs

from ..runtime.rows import CPU, SMOKE, STANDARD, At, Row, joined


def _x(*shape: int, mean: float = 0.0, std: float = 1.0) -> T:
    return inputs.normal(f"parts/{shape}/{mean}", shape, std=std) + mean


def _places(*shape: int, high: int) -> T:
    return inputs.integers(f"parts/{shape}", shape, low=0, high=high)


class Of(nn.Module):
    """Calls a module in some way, and returns all tensors that it gives, as states are beside the result."""

    def __init__(self, function: Callable[[nn.Module, T], object], inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: T) -> tuple[T, ...]:
        return (*tensors(self.function(self.inner, x)),)


Recurrent = partial(Of, nn.Module.__call__)


class Loss(nn.Module):
    """A loss of logits with fixed targets; what it is given is scaled by a weight, which gets a gradient."""

    def __init__(self, loss: nn.Module, target: T) -> None:
        super().__init__()
        self.loss, self.scale = loss, nn.Parameter(torch.ones(()))
        self.register_buffer("target", target)

    def forward(self, x: T) -> T:
        found: T = self.loss(x * self.scale, self.target)
        return found


_WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])
_TARGETS = torch.tensor([0, 4, -100, 1, 2, -100, 3, 4, 0])
_LABELS = torch.tensor([[1, 1, 3], [3, 3, 0], [4, 0, 0], [0, 0, 0]])  # the second just fit in three steps
_MASK = torch.ones(9, 9).triu(1).bool()
_LATE = torch.arange(9) > torch.tensor([[5], [8], [0]])


def _masked(inner: nn.Module, x: T) -> T:
    """Attend with a mask for each batch and head, and with numbers that are added."""
    heads = inner(x).view(3, 9, 2, 8).transpose(1, 2)
    mask = (_x(3, 2, 9, 9) > 0).to(x.device) | torch.eye(9, dtype=torch.bool, device=x.device)
    attend = nn.functional.scaled_dot_product_attention
    few = attend(heads[:, :, :5], heads, heads, attn_mask=mask[:, :, :5])  # of fewer queries than keys
    added = attend(heads, heads, heads, attn_mask=_MASK.to(heads))
    return torch.cat([attend(heads, heads, heads, attn_mask=mask), few, added], 2)


def _from_states(inner: nn.Module, x: T) -> object:
    """Begin with states that are not zero, which are of the inputs."""
    first = torch.cat([x[:1], x[1:2, :, :1]], -1).tanh()
    return inner(x, (first, first.flip(1)) if isinstance(inner, nn.LSTM) else first)[0]


def _stacked(inner: nn.Module, x: T) -> object:
    return inner(x, (x[:4].tanh(), x[4:8].tanh()) if isinstance(inner, nn.LSTM) else x[:4].tanh())


def _packed(inner: nn.Module, x: T, lengths: tuple[int, ...] = (9, 6, 2)) -> object:
    """Give sequences of several lengths, as recognisers of speech train; those in another order begin with states."""
    is_mixed = sorted(lengths, reverse=True) != [*lengths]
    given = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted=not is_mixed)
    states = [(x[:, :2].transpose(0, 1).tanh(), x[:, 2:4].transpose(0, 1).tanh())] if is_mixed else []
    found, last = inner(given, *states)
    return nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0], last


#: Modules and what they are given: a shape, or what makes it.
MODULES: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...] | Callable[[], T]]] = {
    "lstm": (lambda: Recurrent(nn.LSTM(12, 16, batch_first=True)), (3, 9, 12)),
    "lstm-wide": (lambda: Of(_from_states, nn.LSTM(3, 4)), (33, 130, 3)),
    "gru-long": (lambda: Of(_from_states, nn.GRU(3, 4)), (150, 2, 3)),
    "lstm-without-bias": (lambda: Recurrent(nn.LSTM(12, 16, bias=False)), (35, 3, 12)),
    "lstm-packed": (lambda: Of(_packed, nn.LSTM(12, 16, batch_first=True)), (3, 9, 12)),
    "gru": (lambda: Recurrent(nn.GRU(12, 16, batch_first=True)), (3, 9, 12)),
    "gru-stacked": (lambda: Recurrent(nn.GRU(12, 16, 2, bidirectional=True)), (9, 3, 12)),
    "lstm-stacked": (lambda: Of(_stacked, nn.LSTM(5, 5, 2, bidirectional=True)), (9, 3, 5)),
    "gru-of-states": (lambda: Of(_stacked, nn.GRU(5, 5, 2, bidirectional=True)), (9, 3, 5)),
    "gru-evaluated": (lambda: Recurrent(nn.GRU(8, 8, 2, dropout=0.5)).eval(), (9, 3, 8)),
    "lstm-dropped": (lambda: Recurrent(nn.LSTM(8, 8, 2, dropout=1.0)), (9, 3, 8)),
    "gru-dropped": (lambda: Recurrent(nn.GRU(8, 8, 2, dropout=1.0)), (9, 3, 8)),
    "lstm-packed-mixed": (lambda: Of(partial(_packed, lengths=(2, 9, 6)), nn.LSTM(12, 12, bidirectional=True,
        batch_first=True)), (3, 9, 12)),
    "rnn": (lambda: Recurrent(nn.RNN(12, 16, batch_first=True)), (3, 9, 12)),
    "rnn-relu": (lambda: Recurrent(nn.RNN(12, 16, nonlinearity="relu")), (9, 3, 12)),
    "gru-cell": (lambda: Of(lambda m, x: m(x, m(x)), nn.GRUCell(12, 16)), (5, 12)),
    "lstm-cell": (lambda: Of(lambda m, x: m(x, m(x))[1], nn.LSTMCell(12, 16)), (5, 12)),
    "attention": (lambda: Of(lambda m, x: m(x, x, x, attn_mask=_MASK.to(x.device),
        key_padding_mask=_LATE.to(x.device), need_weights=True)[0], nn.MultiheadAttention(16, 4, batch_first=True)),
        (3, 9, 16)),
    "attention-masks": (lambda: Of(_masked, nn.Linear(16, 16)), (3, 9, 16)),
    "encoder-layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=True),
        (3, 9, 16)),
    "decoder-layer": (lambda: Of(lambda m, x: m(x, x[:, :5].flip(0)), nn.TransformerDecoderLayer(16, 4, 32, 0.0,
        batch_first=True)), (3, 9, 16)),
    "attention-settings": (lambda: Of(lambda m, x: m(x, x[..., :6], x[..., :5], key_padding_mask=_LATE.to(x.device),
        average_attn_weights=False), nn.MultiheadAttention(16, 4, 0.0, True, True, True, 6, 5, True)), (3, 9, 16)),
    "attention-unbatched": (lambda: Of(lambda m, x: m(x, x, x)[0], nn.MultiheadAttention(16, 4)), (9, 16)),
    "decoder-layer-masks": (lambda: Of(lambda m, x: m(x, x.flip(1), tgt_mask=_MASK.to(x.device), tgt_is_causal=True,
        memory_key_padding_mask=_LATE.to(x.device)), nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True)),
        (3, 9, 16)),
    "alignments": (lambda: Of(lambda m, x: torch.ctc_loss(m(x).log_softmax(-1), _LABELS.to(x.device), (9, 3, 9, 9),
        (3, 2, 1, 0), blank=2, reduction=0, zero_infinity=True), nn.Linear(5, 5)), (9, 4, 5)),
    "unpooled": (lambda: Of(lambda m, x: nn.functional.max_unpool2d(m(x), nn.functional.max_pool2d(_x(2, 3, 6, 8), 2,
        return_indices=True)[1].to(x.device), (2, 2)), nn.Conv2d(2, 3, 1)), (2, 2, 3, 4)),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(9, 7)), (4, 9)),
    "weight_norm-columns": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(9, 7), dim=1), (4, 9)),
    "gated": (lambda: Of(lambda m, x: nn.functional.silu(m(x)[:, :12]) * m(x)[:, 12:], nn.Linear(8, 24, bias=False)),
        (5, 8)),
    "rnn-cell": (lambda: Of(lambda m, x: m(x, m(x)), nn.RNNCell(12, 16, nonlinearity="relu")), (5, 12)),
    "embedding": (lambda: nn.Embedding(17, 6, padding_idx=0), lambda: _places(5, 9, high=3)),
    "embedding-last": (lambda: nn.Embedding(17, 6, padding_idx=-1, scale_grad_by_freq=True),
        lambda: 16 - _places(5, 9, high=3)),
    "batch_norm-small-eps": (lambda: nn.BatchNorm2d(4, eps=1e-12), partial(_x, 3, 4, 5, 6, std=1e-4)),
    "batch_norm-untracked": (lambda: nn.BatchNorm1d(7, track_running_stats=False, affine=False), (9, 7)),
    "layer_norm-small-eps": (lambda: nn.LayerNorm(33, eps=1e-12), partial(_x, 5, 33, std=1e-4)),
    "layer_norm-large-eps": (lambda: nn.LayerNorm(33, eps=0.5, bias=False), partial(_x, 5, 33, std=0.3)),
    "rms_norm-small-eps": (lambda: nn.RMSNorm(33, eps=1e-10), partial(_x, 5, 33, std=1e-4)),
    "group_norm-small-eps": (lambda: nn.GroupNorm(2, 6, eps=1e-10), partial(_x, 3, 6, 7, std=1e-4)),
    "instance_norm": (lambda: nn.InstanceNorm2d(4, eps=1e-10, affine=True), partial(_x, 3, 4, 5, 6, std=1e-3)),
    "cross_entropy": (lambda: Loss(nn.CrossEntropyLoss(_WEIGHTS), _TARGETS), (9, 5)),
    "cross_entropy-sum": (lambda: Loss(nn.CrossEntropyLoss(_WEIGHTS, reduction="sum", ignore_index=4),
        _TARGETS.clamp(0)), (9, 5)),
    "cross_entropy-smooth": (lambda: Loss(nn.CrossEntropyLoss(_WEIGHTS, label_smoothing=0.2), _TARGETS), (9, 5)),
    "cross_entropy-images": (lambda: Loss(nn.CrossEntropyLoss(_WEIGHTS), _TARGETS.view(1, 3, 3)), (1, 5, 3, 3)),
    "cross_entropy-shares": (lambda: Loss(nn.CrossEntropyLoss(_WEIGHTS), _x(9, 5).softmax(-1)),
        partial(_x, 9, 5, mean=1)),
    "nll_loss": (lambda: Loss(nn.NLLLoss(_WEIGHTS, ignore_index=1), _TARGETS.clamp(0)), (9, 5)),
    "bce-weights": (lambda: Loss(nn.BCEWithLogitsLoss(pos_weight=_WEIGHTS), (_x(9, 5) > 0).float()),
        partial(_x, 9, 5, mean=1)),
    "kl_div": (lambda: Loss(nn.KLDivLoss(reduction="batchmean", log_target=True), _x(9, 5).log_softmax(-1)),
        partial(_x, 9, 5, mean=1)),
    "adaptive-softmax": (lambda: Of(lambda m, x: m(x, torch.tensor([0, 5, 11, 3], device=x.device)).loss,
        nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8], 2.0)), (4, 8)),
    "triplet": (lambda: Of(lambda m, x: nn.functional.triplet_margin_loss(m(x), x, x.flip(0), swap=True),
        nn.Linear(9, 9)), (5, 9)),
    "cosine-embedding": (lambda: Of(lambda m, x: nn.functional.cosine_embedding_loss(m(x), x, x[:, 0].sign(), 0.1),
        nn.Linear(9, 9)), (5, 9)),
    "several-labels": (lambda: Loss(nn.MultiLabelSoftMarginLoss(_WEIGHTS), (_x(9, 5) > 0).float()), (9, 5)),
    "gaussian": (lambda: Of(lambda m, x: nn.functional.gaussian_nll_loss(m(x), x, x.detach() ** 2 + 0.1, full=True),
        nn.Linear(9, 9)), (5, 9)),
    "poisson": (lambda: Loss(nn.PoissonNLLLoss(full=True, reduction="sum"), _x(9, 5).abs().round()), (9, 5)),
    "smooth_l1": (lambda: Loss(nn.SmoothL1Loss(beta=2.0, reduction="sum"), _x(9, 5)), partial(_x, 9, 5, mean=1)),
    "conv2d-groups": (lambda: nn.Conv2d(6, 12, 3, (1, 2), (2, 1), dilation=(2, 3), groups=3), (2, 6, 11, 12)),
    "conv2d-depthwise": (lambda: nn.Conv2d(6, 6, 5, groups=6, padding=2, bias=False), (2, 6, 11, 12)),
    "conv2d-same": (lambda: nn.Conv2d(2, 3, (2, 4), padding="same"), (2, 2, 5, 7)),
    "conv2d-circular": (lambda: nn.Conv2d(3, 4, 3, padding=2, padding_mode="circular"), (2, 3, 7, 8)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), output_padding=(1, 2), groups=2),
        (2, 4, 5, 6)),
    "conv3d": (lambda: nn.Conv3d(2, 3, (2, 3, 3), stride=(1, 2, 1)), (1, 2, 4, 7, 6)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), (2, 4, 9)),
    "response_norm": (lambda: nn.Sequential(nn.Conv2d(4, 6, 1), nn.LocalResponseNorm(3, 0.5)),
        (2, 4, 5, 6)),
    "folded": (lambda: nn.Sequential(nn.Unfold(3, padding=1, stride=2), nn.Linear(16, 16), nn.Fold((7, 8), 3, padding=1,
        stride=2)), (2, 3, 7, 8)),
    "of-one-dimension": (lambda: nn.Sequential(nn.MaxPool1d(3, 2, 1), nn.CircularPad1d((2, 1)), nn.Conv1d(3, 4, 3),
        nn.AvgPool1d(2), nn.ReplicationPad1d(2), nn.AdaptiveAvgPool1d(4), nn.LPPool1d(3.0, 2)), (2, 3, 21)),
    "of-three-dimensions": (lambda: nn.Sequential(nn.ReplicationPad3d(1), nn.ConvTranspose3d(2, 3, 2, 2),
        nn.AvgPool3d(2), nn.ReflectionPad3d(1), nn.MaxPool3d(2)), (1, 2, 4, 5, 6)),
    "prelu": (lambda: nn.PReLU(4, init=0.1), (3, 4, 5)),
    "glu": (lambda: nn.Sequential(nn.Linear(8, 12), nn.GLU(1), nn.Hardswish(), nn.ELU(0.3)), (3, 8)),
    "pools": (lambda: nn.Sequential(nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(3, 2, 1,
        count_include_pad=False), nn.AdaptiveAvgPool2d((2, 3))), (2, 3, 17, 18)),
    "pixel_shuffle": (lambda: nn.Sequential(nn.Conv2d(2, 8, 1), nn.PixelShuffle(2), nn.Upsample(scale_factor=2),
        nn.Softmax2d()), (1, 2, 4, 5)),
    "upsampled": (lambda: nn.Sequential(nn.Upsample((7, 9), mode="bilinear", align_corners=True), nn.Conv2d(2, 3, 1),
        nn.Upsample(scale_factor=(1.5, 2), mode="bilinear"), nn.Upsample((5, 7), mode="bicubic", align_corners=True)),
        (2, 2, 4, 5)),
    "padded": (lambda: nn.Sequential(nn.ReflectionPad2d((1, 2, 0, 3)), nn.Conv2d(2, 3, 1),
        nn.ReplicationPad2d((2, 0, 1, 3)), nn.ZeroPad2d((1, 1, 2, -1)), nn.PixelUnshuffle(2)), (2, 2, 6, 5)),
    "adaptive-pools": (lambda: nn.Sequential(nn.AdaptiveMaxPool2d((5, 7)), nn.Conv2d(2, 3, 1), nn.MaxPool2d((2, 3), 1,
        (1, 0)), nn.AvgPool2d((3, 2), (1, 2), (1, 0), divisor_override=5)), (2, 2, 11, 13)),
    "activations": (lambda: nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.3), nn.Softplus(2.0, 3.0), nn.Linear(8, 8),
        nn.Hardtanh(-0.5, 0.7), nn.GELU("tanh"), nn.CELU(0.5), nn.Mish(), nn.LogSoftmax(0)), (5, 8)),
    "more-activations": (lambda: nn.Sequential(nn.Linear(8, 8), nn.SELU(), nn.Hardsigmoid(), nn.Linear(8, 8),
        nn.LogSigmoid(), nn.Tanhshrink(), nn.Softsign(), nn.Linear(8, 8), nn.Softshrink(0.1), nn.Softmin(-1)), (5, 8)),
    "bilinear": (lambda: Of(lambda m, x: m(x, x.flip(0)), nn.Bilinear(5, 5, 7)), (4, 5)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(9, 7)), (4, 9)),
    "cosine": (lambda: Of(lambda m, x: nn.functional.cosine_similarity(m(x), x, eps=1e-3), nn.Linear(9, 9)), (5, 9)),
    "tied": (lambda: Of(lambda m, x: m(x) @ m.weight, nn.Linear(9, 7)), (4, 9)),
}  # fmt: skip


def _has(name: str) -> bool:
    return hasattr(nn, "RMSNorm") or not name.startswith("rms")


def _made(name: str) -> tuple[nn.Module, T]:
    """Return a module with parameters that follow from its name, and what it is given."""
    if not _has(name):
        raise NotImplementedError(f"torch {torch.__version__} has no RMSNorm; 2.4 has")
    make, given = MODULES[name]
    model = make()
    with torch.no_grad():
        for key, each in model.named_parameters():
            fan = each[0].numel() if each.dim() > 1 else 1
            drawn = inputs.normal(f"parts/{name}/{key}", each.shape, std=fan**-0.5)
            each.copy_(drawn * 0.5 + (0.75 if each.dim() < 2 and "bias" not in key else 0.0))
        if isinstance(model, nn.Embedding) and model.padding_idx is not None:
            model.weight[model.padding_idx] = 9.0
    return model, given() if callable(given) else _x(*given)


def _module(at: At, name: str) -> None:
    at.judge.module(*_made(name))


#: Modules that not every chip has, or that are known to deviate.
_APART = ("lstm-packed", "lstm-packed-mixed", "lstm-cell", "lstm-stacked", "gru", "gru-stacked",
    "gru-long", "gru-of-states", "gru-evaluated", "spectral_norm", "alignments", "unpooled",
    "lstm-dropped", "gru-dropped", "folded")  # fmt: skip


def _together(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """All modules, without the search for the layer that is wrong: results, and gradients in one tensor."""
    found: dict[str, T] = {}
    for name in MODULES:
        if name in _APART or not _has(name):
            continue
        model, x = _made(name)
        model, x = model.to(device, dtype), x.to(device, dtype if x.is_floating_point() else None)
        leaves = [*model.parameters(), *([x.requires_grad_()] if x.is_floating_point() else [])]
        outputs = tensors(model(x))
        above = [inputs.normal(f"parts/{each.shape}/above", each.shape).to(device, dtype) for each in outputs]
        grads = torch.autograd.grad(outputs, leaves, above, allow_unused=True)
        found[name] = joined(outputs)
        found[f"gradients of {name}"] = joined(each for each in grads if each is not None)
    return found


def _forward(device: torch.device, dtype: torch.dtype, name: str) -> dict[str, T]:
    """Results, not gradients."""
    model, x = _made(name)
    with torch.no_grad():
        made = model.to(device, dtype)(x.to(device, dtype))
    return {f"result {i}": each for i, each in enumerate(made)}


def _statistics(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Running statistics over three batches: with momentum, with their plain mean, and not in evaluation."""
    found: dict[str, T] = {}
    for momentum in (0.1, None, 1.0):
        for kind, *shape in ((nn.BatchNorm1d, 9, 4), (nn.BatchNorm2d, 3, 4, 5, 6), (nn.InstanceNorm2d, 3, 4, 5, 6)):
            if kind is nn.InstanceNorm2d and momentum is None:
                continue  # which torch 2.1 refuses
            layer = kind(4, momentum=momentum, track_running_stats=True).to(device, dtype)  # type: ignore[arg-type]
            copied = deepcopy(layer)  # whose statistics stay as they are
            for turn in range(3):
                result = layer(_x(*shape, mean=turn + 0.5, std=turn + 1).to(dtype).to(device))
            layer.eval()
            x = _x(*shape).to(dtype).to(device)
            evaluated = torch.cat([layer(x[:1]), layer(x[1:])])
            name = f"{kind.__name__}, momentum {momentum}"
            found |= {f"{name}: training": result, f"{name}: evaluation": evaluated}
            found |= {f"{name}: {key}": each.to(dtype) for key, each in layer.named_buffers()}
            found |= {f"{name}: {key} of a copy": each.to(dtype) for key, each in copied.named_buffers()}
    return found


def _renormalized(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Rows that are looked up are made no longer than the limit, by the norm that is asked; others stay."""
    found: dict[str, T] = {}
    for norm in (1.0, 2.0, 3.0):
        weight, places = _x(17, 6).to(dtype).to(device), _places(5, 3, high=15).to(device)
        found[f"rows, norm {norm}"] = nn.functional.embedding(places, weight, max_norm=1.5, norm_type=norm)
        found[f"table, norm {norm}"] = weight
    return found


def _padding_stays(at: At) -> None:
    for index in (0, 16):
        layer = nn.Embedding(17, 6, padding_idx=index).to(at.device)
        places = torch.tensor([[0, 16, 3], [0, 3, 3]])
        out = layer(places.to(at.device))
        torch.autograd.backward(out, torch.ones_like(out))
        wanted = torch.zeros(17, 6).index_add_(0, places.flatten(), torch.ones(6, 6))
        wanted[index] = 0
        assert layer.weight.grad is not None
        at.same(layer.weight.grad.cpu(), wanted, f"the gradient of an embedding with padding_idx={index} is wrong")


def _all_ignored(at: At) -> None:
    """Where all targets are ignored, the mean is NaN, or zero on a chip without it; sum and gradients are zero."""
    target = torch.full((5,), -100)
    for device in (at.device, CPU):
        x = _x(5, 4).to(device).requires_grad_()
        total = nn.functional.cross_entropy(x, target.to(device), reduction="sum")
        (grad,) = torch.autograd.grad(total, x)
        mean = nn.functional.cross_entropy(x, target.to(device))
        has_nan = device == CPU or at.device.type != "npu" or knows_infinities()
        at.same([float(total), bool(mean.isnan())], [0.0, has_nan], "a loss whose targets are all ignored is wrong")
        at.same(grad.cpu(), torch.zeros(5, 4), "a target that is ignored gives a gradient")


PARTS: Mapping[str, Row] = {
    **{name: (STANDARD, partial(_module, name=name)) for name in MODULES},
    "lstm-packed-forward": (SMOKE, lambda at: at.defined(partial(_forward, name="lstm-packed"), accumulation=64)),
    "lstm-packed-mixed": (
        STANDARD,
        lambda at: at.defined(partial(_forward, name="lstm-packed-mixed"), accumulation=64),
    ),
    "together": (SMOKE, lambda at: at.defined(_together, orders=4, accumulation=128)),
    "running-statistics": (SMOKE, lambda at: at.defined(_statistics, accumulation=90)),
    "padding": (SMOKE, _padding_stays),
    "embedding-renorm": (SMOKE, lambda at: at.defined(_renormalized, accumulation=6)),
    "all-ignored": (STANDARD, _all_ignored),
}
