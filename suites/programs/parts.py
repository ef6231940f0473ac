"""Parts of models with settings that single-operator samples leave out: whole modules, forward and backward."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor as T  # noqa: N817
from torch import nn

from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.operators.calling import on_tensors, tensors
from pytest_ascend.run import inputs
from pytest_ascend.system.bundled import beside

from ..runtime.rows import CPU, SMOKE, STANDARD, At, Row, alike, described, joined, numbered, saved


def _x(*shape: int, mean: float = 0.0, std: float = 1.0) -> T:
    return inputs.normal(f"parts/{shape}/{mean}", shape, std=std) + mean


class Of(nn.Module):
    """A module that calls ``inner`` through ``function`` and returns all resulting tensors, such as states."""

    def __init__(self, function: Callable[[nn.Module, T], object], inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: T) -> tuple[T, ...]:
        return (*tensors(self.function(self.inner, x)),)


Recurrent = partial(Of, nn.Module.__call__)


_LABELS = torch.tensor([[1, 1, 3], [3, 3, 0], [4, 0, 0], [0, 0, 0]])  # the second barely fits in three steps
_LATE = torch.arange(9) > torch.tensor([[5], [8], [0]])


def _masked(inner: nn.Module, x: T) -> T:
    """Attend with a mask for each batch and head, and with an additive mask."""
    heads = inner(x).view(3, 9, 2, 8).transpose(1, 2)
    mask = (_x(3, 2, 9, 9) > 0).to(x.device) | torch.eye(9, dtype=torch.bool, device=x.device)
    attend = nn.functional.scaled_dot_product_attention
    few = attend(heads[:, :, :5], heads, heads, attn_mask=mask[:, :, :5])  # fewer queries than keys
    added = attend(heads, heads, heads, attn_mask=torch.ones(9, 9).triu(1).to(heads))
    return torch.cat([attend(heads, heads, heads, attn_mask=mask), few, added], 2)


def _from_states(inner: Any, x: T) -> object:
    """Start from nonzero states, computed from the inputs."""
    count, wider = inner.num_layers * (1 + inner.bidirectional), inner.hidden_size - x.shape[-1]
    first = nn.functional.pad(x[:count], (0, wider), value=0.5).tanh()
    return inner(x, (first, first.flip(1)) if isinstance(inner, nn.LSTM) else first)


def _packed(inner: nn.Module, x: T, lengths: tuple[int, ...] = (9, 6, 2)) -> object:
    """Pack sequences of several lengths, as in training speech recognisers; unsorted ones start with given states."""
    is_mixed = sorted(lengths, reverse=True) != [*lengths]
    given = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted=not is_mixed)
    states = [(x[:, :2].transpose(0, 1).tanh(), x[:, 2:4].transpose(0, 1).tanh())] if is_mixed else []
    found, last = inner(given, *states)
    return nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0], last


#: Modules and their inputs: a shape, or a function that makes the input.
MODULES: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...] | Callable[[], T]]] = {
    "lstm": (lambda: Recurrent(nn.LSTM(12, 16, batch_first=True)), (3, 9, 12)),
    "gru-stacked": (lambda: Recurrent(nn.GRU(12, 16, 2, bidirectional=True)), (9, 3, 12)),
    "gru-evaluated": (lambda: Recurrent(nn.GRU(8, 8, 2, dropout=0.5)).eval(), (9, 3, 8)),
    "lstm-wide": (lambda: Of(_from_states, nn.LSTM(3, 4)), (33, 130, 3)),
    "gru-long": (lambda: Of(_from_states, nn.GRU(3, 4)), (150, 2, 3)),
    "lstm-packed": (lambda: Of(_packed, nn.LSTM(12, 16, batch_first=True)), (3, 9, 12)),
    "lstm-stacked": (lambda: Of(_from_states, nn.LSTM(5, 5, 2, bidirectional=True)), (9, 3, 5)),
    "gru-of-states": (lambda: Of(_from_states, nn.GRU(5, 5, 2, bidirectional=True)), (9, 3, 5)),
    "lstm-dropped": (lambda: Recurrent(nn.LSTM(8, 8, 2, dropout=1.0)), (9, 3, 8)),
    "gru-dropped": (lambda: Recurrent(nn.GRU(8, 8, 2, dropout=1.0)), (9, 3, 8)),
    "lstm-packed-mixed": (lambda: Of(partial(_packed, lengths=(2, 9, 6)), nn.LSTM(12, 12, bidirectional=True,
        batch_first=True)), (3, 9, 12)),
    "attention-masks": (lambda: Of(_masked, nn.Linear(16, 16)), (3, 9, 16)),
    "attention-settings": (lambda: Of(lambda m, x: m(x, x[..., :6], x[..., :5], key_padding_mask=_LATE.to(x.device),
        average_attn_weights=False), nn.MultiheadAttention(16, 4, 0.0, True, True, True, 6, 5, True)), (3, 9, 16)),
    "alignments": (lambda: Of(lambda m, x: torch.ctc_loss(m(x).log_softmax(-1), _LABELS.to(x.device), (9, 3, 9, 9),
        (3, 2, 1, 0), blank=2, reduction=0, zero_infinity=True), nn.Linear(5, 5)), (9, 4, 5)),
    "unpooled": (lambda: Of(lambda m, x: nn.functional.max_unpool2d(m(x), nn.functional.max_pool2d(_x(2, 3, 6, 8), 2,
        return_indices=True)[1].to(x.device), (2, 2)), nn.Conv2d(2, 3, 1)), (2, 2, 3, 4)),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(9, 7)), (4, 9)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(9, 7)), (4, 9)),
}  # fmt: skip


def _filled(key: str, module: nn.Module) -> nn.Module:
    """Set parameters that are derived from a key."""
    with torch.no_grad():
        for name, each in module.named_parameters():
            fan = each[0].numel() if each.dim() > 1 else 1
            drawn = inputs.normal(f"{key}/{name}", each.shape, std=fan**-0.5)
            each.copy_(drawn * 0.5 + (0.75 if each.dim() < 2 and "bias" not in name else 0.0))
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx] = 9.0
    return module


def _made(name: str) -> tuple[nn.Module, T]:
    """Return a module, with parameters derived from its name, and its input."""
    if name in SETTINGS:
        module, (x,), _ = _built(f"parts/{name}", *SETTINGS[name])
        return module, x.detach()
    make, given = MODULES[name]
    return _filled(f"parts/{name}", make()), given() if callable(given) else _x(*given)


def _module(at: At, name: str) -> None:
    at.judge.module(*_made(name))


#: By module: whether it is in training mode, its arguments, and its inputs. Source: PyTorch 2.13's module_db.
KINDS: Mapping[str, list[Any]] = beside(__file__, "modules.json")
_AT_SMOKE = """LSTMCell RNN MultiheadAttention TransformerEncoderLayer TransformerDecoderLayer Bilinear PReLU
CrossEntropyLoss NLLLoss BCEWithLogitsLoss PoissonNLLLoss SmoothL1Loss CosineEmbeddingLoss MaxPool1d
MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool2d AdaptiveMaxPool2d LPPool1d Conv1d GLU
ELU CELU SELU Hardtanh Hardswish LeakyReLU Softplus Mish LogSigmoid LogSoftmax ReflectionPad3d
ReplicationPad1d"""
#: Modules whose gradients are not compared, or depend on results that are known to deviate.
_RESULTS_ALONE = ("lstm-packed-mixed", "lstm-dropped", "gru-dropped")
#: Settings that PyTorch's tests leave out: by name, the module and an entry as above.
SETTINGS: Mapping[str, tuple[str, list[Any]]] = beside(__file__, "settings.json")
#: Modules that not every chip supports, or that are known to deviate.
_APART = ("lstm-packed", "lstm-packed-mixed", "lstm-stacked", "gru-stacked",
    "gru-long", "gru-of-states", "gru-evaluated", "spectral_norm", "alignments", "unpooled",
    "lstm-dropped", "gru-dropped")  # fmt: skip


def _computed(
    name: str, module: nn.Module, device: torch.device, dtype: torch.dtype, *given: T, **how: T
) -> dict[str, T]:
    """Return results and the gradients of all parameters and floating-point inputs, each joined in one tensor."""

    def put(x: T) -> T:
        moved = x.to(device, dtype if x.is_floating_point() else None).detach()
        return moved.requires_grad_(x.requires_grad)

    module, given, how = module.to(device, dtype), on_tensors(put, given), on_tensors(put, how)
    outputs = [each for each in tensors(module(*given, **how)) if each.is_floating_point()]
    leaves = [each for each in (*module.parameters(), *tensors([given, how])) if each.requires_grad]
    above = [inputs.normal(f"parts/{each.shape}/above", each.shape).to(device, dtype) for each in outputs]
    found = {name: joined(outputs)}
    if leaves and module.training:  # in evaluation mode, not every device saves what gradients need
        grads = torch.autograd.grad(outputs, leaves, above, allow_unused=True)
        found[f"gradients of {name}"] = joined(each for each in grads if each is not None)
    return found


def _together(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Return the results of all modules, without locating a faulty layer."""
    found: dict[str, T] = {}
    for name in (*MODULES, *SETTINGS):
        if name not in _APART and hasattr(nn, SETTINGS.get(name, ("Module", []))[0]):
            model, x = _made(name)
            found |= _computed(name, model, device, dtype, x.requires_grad_() if x.is_floating_point() else x)
    for kind in _AT_SMOKE.split():
        found |= {f"{kind}, {key}": x for key, x in _of_torch(device, dtype, kind, step=10).items()}
    return found


def _drawn(key: str, told: Any) -> Any:
    """Return the inputs of PyTorch's tests, with numbers derived from a key; all but targets require a gradient."""
    if isinstance(told, list):
        return [_drawn(f"{key}/{i}", each) for i, each in enumerate(told)]
    if not isinstance(told, dict):
        return told
    if "elements" in told:
        return torch.tensor(told["elements"])
    if "numbers" not in told:
        return {name: _drawn(f"{key}/{name}", each) for name, each in told.items()}
    # Variants of one input share the numbers of all modules here with that shape.
    x = inputs.normal(key, told["shape"]) if "std" not in told else _x(*told["shape"], std=told["std"])
    if told["numbers"] == "any":
        return x.requires_grad_()
    return {"signs": x.sign(), "shares": x.sigmoid(), "low": -x.abs() - 0.1, "high": x.abs() + 0.1}[told["numbers"]]


def _built(key: str, kind: str, row: list[Any]) -> tuple[nn.Module, list[T], dict[str, T]]:
    """Return a module and its inputs. Raise NotImplementedError or TypeError for what torch does not know."""
    if not hasattr(nn, kind):
        raise NotImplementedError(f"torch {torch.__version__} has no {kind}")
    training, *rest = row
    made, given, more = _drawn(key, [rest[:2], *rest[2:]])
    args, named = on_tensors(lambda x: x.detach(), made)
    return _filled(key, getattr(nn, kind)(*args, **named)).train(training), given, more


def _of_torch(device: torch.device, dtype: torch.dtype, kind: str, step: int = 1) -> dict[str, T]:
    """Run a module on the inputs of PyTorch's own tests, in all settings that this version of torch knows."""
    found: dict[str, T] = {}
    for place, row in enumerate(KINDS[kind][::step]):
        try:
            module, given, more = _built(f"{kind}/{place}", kind, row)
        except TypeError:  # an argument of a newer version
            continue
        found |= _computed(f"input {place}", module, device, dtype, *given, **more)
    return found


def _forward(device: torch.device, dtype: torch.dtype, name: str) -> dict[str, T]:
    """Return results without gradients."""
    model, x = _made(name)
    return _computed(name, model.requires_grad_(False), device, dtype, x)


def _statistics(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Return running statistics over three batches: with momentum, as a cumulative mean, and in evaluation mode.

    Averages of the weights, plain and exponential, are kept in a copy, whose own statistics do not change.
    """
    found, of = dict[str, T](), importlib.import_module("torch.optim.swa_utils")
    ways: Mapping[float | None, dict[str, Any]] = {
        0.1: {}, None: {"multi_avg_fn": of.get_ema_multi_avg_fn(0.75)}, 1.0: {"avg_fn": of.get_ema_avg_fn(0.75)},
    }  # fmt: skip
    for momentum, how in ways.items():
        for kind, *shape in ((nn.BatchNorm1d, 9, 4), (nn.BatchNorm2d, 3, 4, 5, 6), (nn.InstanceNorm2d, 3, 4, 5, 6)):
            if kind is nn.InstanceNorm2d and momentum is None:
                continue  # torch 2.1 refuses this
            layer = kind(4, momentum=momentum, affine=True, track_running_stats=True).to(device, dtype)  # type: ignore[arg-type]
            average = of.AveragedModel(layer, device, **how)
            for turn in range(3):
                layer.weight.data += turn + 0.5
                average.update_parameters(layer)
                result = layer(_x(*shape, mean=turn + 0.5, std=turn + 1).to(dtype).to(device))
            layer.eval()
            x = _x(*shape).to(dtype).to(device)
            evaluated = torch.cat([layer(x[:1]), layer(x[1:])])
            name = f"{kind.__name__}, momentum {momentum}"
            found |= {f"{name}: training": result, f"{name}: evaluation": evaluated}
            found |= {f"{name}: {key}": each.to(dtype) for key, each in layer.named_buffers()}
            found |= {f"{name}: {key} of a copy": each.to(dtype) for key, each in average.state_dict().items()}
    return found


def _renormalized(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Look up rows that are renormalized to a maximum norm; other rows must not change."""
    found: dict[str, T] = {}
    for norm in (1.0, 2.0, 3.0):
        weight = _x(17, 6).to(dtype).to(device)
        places = inputs.integers("parts/(5, 3)", (5, 3), low=0, high=15).to(device)
        found[f"rows, norm {norm}"] = nn.functional.embedding(places, weight, max_norm=1.5, norm_type=norm)
        found[f"table, norm {norm}"] = weight
    return found


def _all_ignored(at: At) -> None:
    """Check a loss with only ignored targets: mean NaN, or zero on a chip without NaN; sum and gradients zero."""
    target = torch.full((5,), -100)
    for device in (at.device, CPU):
        x = _x(5, 4).to(device).requires_grad_()
        total = nn.functional.cross_entropy(x, target.to(device), reduction="sum")
        (grad,) = torch.autograd.grad(total, x)
        mean = nn.functional.cross_entropy(x, target.to(device))
        has_nan = device == CPU or at.device.type != "npu" or knows_infinities()
        at.same([float(total), bool(mean.isnan())], [0.0, has_nan], "a loss whose targets are all ignored is wrong")
        at.same(grad.cpu(), torch.zeros(5, 4), "a target that is ignored gives a gradient")


class Tied(nn.Module):
    """A module with tied weights, a frozen parameter, and buffers of several dtypes, one of them not saved."""

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.table, self.head, self.norm = nn.Embedding(5, 4), nn.Linear(4, 5), nn.BatchNorm1d(4)
        self.head.weight = self.table.weight
        self.head.bias.requires_grad_(False)
        self.register_buffer("mask", torch.arange(4) > 1, persistent=False)
        self.register_buffer("scale", torch.arange(4.0))
        self.rest = nn.ParameterList([self.norm.weight, torch.ones(3, 2)])
        for place, each in enumerate((*self.parameters(), *self.buffers()), first):
            each.data.copy_((numbered(each.numel(), place) % 97).view(each.shape))
            each.grad = each.detach() - 5 if each.requires_grad else None


def _loaded(module: nn.Module, state: Mapping[str, T], **how: bool) -> nn.Module:
    module.load_state_dict(state, **how)
    return module


Way: TypeAlias = Callable[[Any, Any, torch.device], nn.Module]
#: Operations on a module on the host and another on the device; below, the same through a file.
DONE: Mapping[str, Way] = {
    "to": lambda m, _, d: m.to(d), "there and back": lambda _, n, d: n.cpu().to(d), "half": lambda _, n, __: n.half(),
    "to half": lambda m, _, d: m.to(d, torch.float16), "deepcopy": lambda _, n, __: deepcopy(n),
    "copy and itself": lambda _, n, __: nn.ModuleList([n, deepcopy(n), n.head]),
    "load": lambda m, n, _: _loaded(n, m.state_dict()), "load, cast": lambda m, n, _: _loaded(n.half(), m.state_dict()),
    "load, assigned": lambda m, n, d: _loaded(n, deepcopy(m.to(d)).state_dict(), assign=True),
    "load a part": lambda m, n, _: _loaded(n, m.norm.state_dict(prefix="norm."), strict=False),
    "empty": lambda m, n, d: _loaded(
        m.to_empty(device=d).apply(lambda each: (each.zero_grad(), [x.zero_() for x in each.buffers()])), n.state_dict()
    ),
    "frozen": lambda _, n, __: n.requires_grad_(False), "without gradients": lambda _, n, __: (n.zero_grad(), n)[1],
    "gradients of zero": lambda _, n, __: (n.zero_grad(set_to_none=False), n)[1],
    "apply": lambda _, n, __: n.apply(lambda each: isinstance(each, nn.Linear) and nn.init.constant_(each.weight, 3)),
}  # fmt: skip
SAVED: Mapping[str, Way] = {
    "saved": lambda _, n, __: torch.load(saved(n), weights_only=False),
    "load what was saved": lambda _, n, __: _loaded(n, torch.load(saved(n.state_dict()), weights_only=True)),
    "load, assigned": lambda _, n, __: _loaded(n, torch.load(saved(n.state_dict()), weights_only=True), assign=True),
    "load to the host": lambda m, n, d: _loaded(m, torch.load(saved(n.state_dict()), "cpu", weights_only=True)).to(d),
}


def moved(device: torch.device, ways: Mapping[str, Way]) -> dict[str, Any]:
    """Return what each module holds, which parameters and memory it shares with before, and the effect of a change."""
    found: dict[str, Any] = {}
    for name, do in ways.items():
        given, there = Tied(), Tied(50).to(device)
        before = {each: each.detach() for each in (*given.parameters(), *there.parameters())}
        module = do(given, there, device)
        named = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
        grads = {f"{key}.grad": each.grad for key, each in named.items() if each.grad is not None}
        are_there = [each.device.type == device.type for each in (*named.values(), *grads.values())]
        are_known = [each in before for each in named.values()]
        found[name] = [described(named | grads), are_there, are_known, [each.clone() for each in before.values()]]
        found[f"{name}, state"] = module.state_dict()  # which shares memory and shows the change below
        next(module.parameters()).data.add_(1)
        found[f"{name}, changed"] = [*named.values()]
    return found


_defined = partial(At.defined, orders=4, accumulation=128)
_ANOTHER = "a module that is moved, cast, copied or loaded is not what it was"
PARTS: Mapping[str, Row] = {
    **{kind: (STANDARD, partial(_defined, function=partial(_of_torch, kind=kind), scale=1.0)) for kind in KINDS},
    **{name: (STANDARD, partial(_module, name=name)) for name in (*MODULES, *SETTINGS)},
    **{
        f"{name}{way}": (level, partial(At.defined, function=partial(_forward, name=name), accumulation=64))
        for name, way, level in (("lstm-packed", "-forward", SMOKE), *((name, "", STANDARD) for name in _RESULTS_ALONE))
    },
    "together": (SMOKE, partial(_defined, function=_together)),
    "running-statistics": (SMOKE, lambda at: at.defined(_statistics, accumulation=90)),
    "embedding-renorm": (SMOKE, lambda at: at.defined(_renormalized, accumulation=6)),
    "all-ignored": (STANDARD, _all_ignored),
    "moved": alike(SMOKE, partial(moved, ways=DONE), _ANOTHER),
    "saved": alike(STANDARD, partial(moved, ways=SAVED), _ANOTHER),
}
