"""Captured workloads: each computes the same eagerly and by replays, and passes both to a bitwise comparison.

They need no pytest: ``WORKLOADS["counter"](device, same)``, where ``same(actual, expected, where, locate)`` raises if
the tensors differ in any bit; ``locate``, if given, names the first operator that differs.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from pytest_ascend import precision
from pytest_ascend.operators import InputFactory
from pytest_ascend.operators.calling import on_tensors, tensors
from pytest_ascend.parity.training import scaler_of
from pytest_ascend.precision.layers import UNWRITTEN
from pytest_ascend.system.dispatching import EagerDispatchMode

from ..models.architectures import ResNet50
from ..ops.table import OPERATORS
from ..runtime.rows import forked
from ..runtime.soaks import host_bytes

_torch: Any = torch  # with torch.npu, which torch_npu adds
Same: TypeAlias = Callable[..., None]


def captured(work: Callable[[], Any], **settings: Any) -> tuple[Any, Any]:
    graph = _torch.npu.NPUGraph()
    with _torch.npu.graph(graph, **settings):
        result = work()
    return graph, result


def warm_up(*steps: Callable[[], object]) -> None:
    """Run steps on a side stream, as torch recommends before a capture."""
    with forked(_torch.npu, _torch.npu.Stream()):
        for step in steps:
            step()


def numbers(device: torch.device, seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


class Watched(EagerDispatchMode):
    """Keeps each operator's name and first result; other results may be memory that was never written."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.results: list[Tensor] = []

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        made = func(*args, **kwargs)
        for each in [] if func.is_view else tensors(made)[:1]:
            self.names.append(func.overloadpacket.__name__)
            self.results.append(each.clone())
        return made


def first_wrong(work: Callable[[], Any], inputs: Sequence[Tensor], rounds: Sequence[Sequence[Tensor]]) -> str:
    """Capture a computation again, and name the first operator whose replay differs in bits from eager calls."""
    seen = Watched()

    def watched() -> list[Tensor]:
        seen.names, seen.results = [], []
        with seen:
            work()
        return seen.results

    for found, wanted in _rounds(watched, inputs, rounds):
        names = seen.names
        for number, (name, *pair) in enumerate(zip(names, found, wanted, strict=True), start=1):
            if name not in UNWRITTEN and not precision.compare(*pair, standard="binary").agrees:
                return f"the first wrong operator is {name} ({number} of {len(names)})"
    return "no operator is wrong when each one's results are kept"


def _rounds(
    work: Callable[[], Any], inputs: Sequence[Tensor], rounds: Sequence[Sequence[Tensor]], **settings: Any
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    def give(values: Sequence[Tensor]) -> None:
        for static, value in zip(inputs, values, strict=True):
            static.copy_(value)

    give(rounds[0])
    graph, results = captured(work, **settings)
    for values in rounds:
        give(values)
        expected = [each.clone() for each in tensors(work())]
        give(values)
        graph.replay()
        yield tensors(results), expected


def replays(work: Callable[[], Any], inputs: Sequence[Tensor], others: Sequence[Sequence[Tensor]], same: Same) -> None:
    with torch.no_grad():
        work()  # one-time work happens here
        first = [each.clone() for each in inputs]
        rounds = [first, *others, others[0], first]
        locate = partial(first_wrong, work, inputs, rounds)
        for number, pairs in enumerate(_rounds(work, inputs, rounds), start=1):
            for place, pair in enumerate(zip(*pairs, strict=True)):
                same(*pair, f"replay {number}, result {place}", locate)


def operator(name: str, dtype: str, device: torch.device, same: Same) -> None:
    """Capture an operator of the catalogue with its first sample, and replay it with samples of other seeds."""
    found, its = OPERATORS[name], getattr(torch, dtype)

    def drawn(seed: int) -> tuple[Any, Any]:
        sample = next(iter(found.inputs(InputFactory(f"graphs/{name}", its))))
        given = sample.arguments(f"graphs/{name}/{seed}", its)
        args, kwargs = on_tensors(lambda each: each.detach().to(device), given)
        return args, kwargs

    args, kwargs = drawn(0)
    others = [list(tensors(drawn(seed))) for seed in (1, 2)]
    replays(lambda: found.function(*args, **kwargs), list(tensors((args, kwargs))), others, same)


def model(make: Callable[[], nn.Module], shape: tuple[int, ...], device: torch.device, same: Same) -> None:
    torch.manual_seed(0)
    made, x = make().to(device).eval(), numbers(device, 0, *shape)
    replays(lambda: made(x), [x], [[numbers(device, 1, *shape)]], same)


def vit_encoder(device: torch.device, same: Same) -> None:
    """Capture an encoder for three numbers of images: each graph has its own size, from one pool."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, norm_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)  # in eval mode, torch_npu copies
    pool, graphs = _torch.npu.graph_pool_handle(), dict[int, Any]()
    with torch.no_grad():
        for images in (4, 2, 1, 1, 4, 2, 1):
            if images not in graphs:
                x, *values = (numbers(device, images + 9 * n, images, 17, 32) for n in range(4))
                given = partial(encoder, x), [x], [[each] for each in values]
                encoder(x)
                graphs[images] = _rounds(*given, pool=pool), partial(first_wrong, *given)
            rounds, locate = graphs[images]
            for pair in zip(*next(rounds), strict=True):
                same(*pair, f"graph of {images} images", locate)


def counter(device: torch.device, same: Same) -> None:
    count, step = torch.zeros(1, device=device), torch.ones(1, device=device)
    graph, _ = captured(lambda: count.add_(step))
    same(count, torch.zeros(1), "what add_ counts, after the capture")
    for number in range(1, 4):
        graph.replay()
        same(count, torch.full((1,), float(number)), f"what add_ counts, after replay {number}")
    step.fill_(5)
    graph.replay()
    same(count, torch.full((1,), 8.0), "what add_ counts, after a replay with another step")


def copies(device: torch.device, same: Same) -> None:
    host, x = torch.zeros(8).pin_memory(), numbers(device, 0, 8)
    there, target, zeros = torch.empty_like(x), torch.empty(8, 2, device=device), torch.ones(8, device=device)

    def work() -> Tensor:
        there.copy_(host, non_blocking=True)
        zeros.zero_()
        target[:, 0].copy_(x)
        target[:, 1].copy_(there + zeros)
        return target.clone()

    graph, result = captured(work)
    for number in range(1, 4):
        host.fill_(number)
        zeros.fill_(9)
        x.copy_(numbers(device, number, 8))
        graph.replay()
        same(zeros, torch.zeros(8), f"replay {number}, what zero_ fills")
        same(result, torch.stack([x.cpu(), host], 1), f"replay {number}, what copy_ copies")


def streams(device: torch.device, same: Same) -> None:
    x, side = numbers(device, 0, 64), _torch.npu.Stream()

    def work() -> Tensor:
        a = x * 2
        side.wait_stream(_torch.npu.current_stream())
        with _torch.npu.stream(side):
            b = a.exp()
        c = a + 1
        _torch.npu.current_stream().wait_stream(side)
        return b + c

    graph, result = captured(work)
    for number in range(1, 4):
        x.copy_(numbers(device, number, 64))
        expected = (x * 2).exp() + (x * 2 + 1)
        graph.replay()
        same(result, expected, f"replay {number}, exp of one stream and add of the other")


def growing_cache(device: torch.device, same: Same) -> None:
    cache, x = torch.zeros(8, 16, device=device), numbers(device, 0, 1, 16)
    place, places = torch.zeros(1, dtype=torch.int64, device=device), torch.arange(8, device=device)

    def work(kept: Tensor) -> Tensor:
        kept.index_copy_(0, place, x)
        scores = (x @ kept.T).masked_fill(places > place, float("-inf"))
        result: Tensor = scores.softmax(-1) @ kept
        return result

    eager = cache.clone()
    work(cache)
    cache.zero_()
    graph, result = captured(lambda: work(cache))
    for number in range(8):
        place.fill_(number)
        x.copy_(numbers(device, number, 1, 16))
        graph.replay()
        same(result, work(eager), f"replay {number}, softmax and product of attention")
        same(cache, eager, f"replay {number}, what index_copy_ writes to the cache")


def twins(device: torch.device) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    return net, copy.deepcopy(net), numbers(device, 0, 4, 8), numbers(device, 1, 4, 4)


def same_parameters(mine: nn.Module, theirs: nn.Module, same: Same, where: str) -> None:
    for (name, actual), wanted in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        same(actual, wanted, f"{where}{name}")


def training_step(device: torch.device, same: Same) -> None:
    eager, graphed, x, y = twins(device)

    def of(net: nn.Module) -> Callable[[], Tensor]:
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        scale = torch.full((), 128.0, device=device)

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss = F.mse_loss(net(x), y)
            torch.autograd.backward(loss * scale)
            for grad in (each.grad for each in net.parameters() if each.grad is not None):
                grad.div_(scale)
            optimizer.step()
            return loss.detach()

        return step

    steps = of(eager), of(graphed)
    warm_up(*steps, *steps)
    graph, loss = captured(steps[1])
    for number in range(1, 5):
        x.copy_(numbers(device, number, 4, 8))
        expected = steps[0]()
        graph.replay()
        same(loss, expected, f"step {number}, the loss")
        same_parameters(graphed, eager, same, f"step {number}, ")


def grad_scaler(device: torch.device, same: Same) -> None:
    """Capture forward and backward under autocast with a scaled loss; the scaler's steps between change the scale.

    Uses torch's scaler, which changes its scale in place: torch_npu's assigns a new one, which no graph sees.
    """
    eager, graphed, x, y = twins(device)

    def of(net: nn.Module) -> tuple[Callable[[], None], Callable[[], None], Any]:
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = scaler_of(device.type, 1024.0, growth_interval=2)

        def backward() -> None:
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast(device.type, torch.float16):
                loss = F.mse_loss(net(x), y)
            torch.autograd.backward(scaler.scale(loss))

        def step() -> None:
            scaler.step(optimizer)
            scaler.update()

        return backward, step, scaler

    (run, step, scaler), (work, graphed_step, graphed_scaler) = of(eager), of(graphed)
    warm_up(run, step, work, graphed_step)
    graph, _ = captured(work)
    for number in range(1, 6):
        x.copy_(numbers(device, number, 4, 8) * (float("inf") if number == 3 else 1.0))
        run()
        gradients = [each.grad.clone() for each in eager.parameters() if each.grad is not None]
        step()  # first, as chips without Inf have one flag for overflow, which a step reads and clears
        graph.replay()
        for (name, mine), theirs in zip(graphed.named_parameters(), gradients, strict=True):
            same(mine.grad, theirs, f"step {number}, the gradient of {name}")
        graphed_step()
        same_parameters(graphed, eager, same, f"step {number}, ")
        found, wanted = (torch.tensor(each.get_scale()) for each in (graphed_scaler, scaler))
        same(found, wanted, f"step {number}, the scale")


def changed_weights(device: torch.device, same: Same) -> None:
    """Copy other weights into the tensors of a captured layer, as load_state_dict does: replays use them."""
    layer, x = nn.Linear(16, 16).to(device), numbers(device, 0, 4, 16)
    given = [x, *(each.detach() for each in layer.parameters())]
    others = [[numbers(device, 9 * seed + n, *each.shape) for n, each in enumerate(given)] for seed in (1, 2)]
    replays(lambda: layer(x), given, others, same)


def dropout(device: torch.device, same: Same) -> None:
    """Drop out, and draw numbers and tokens, twice: all differ, by replay and by seed, and the seed decides them."""
    ones, shares = torch.ones(4096, device=device), numbers(device, 0, 4096, 8).softmax(-1)

    def work() -> tuple[Tensor, ...]:
        tokens = (shares / torch.empty_like(shares).exponential_()).argmax(-1)  # as vLLM samples
        return F.dropout(ones), torch.randn(4096, device=device), tokens

    work()
    graph, results = captured(lambda: (*work(), *work()))

    def drawn(seed: int | None = None) -> list[Tensor]:
        if seed is not None:
            _torch.npu.manual_seed(seed)
        graph.replay()
        return [each.clone() for each in results]

    names, first = ("dropout", "randn", "sampled tokens") * 2, drawn(5)
    draws = zip(names, first, drawn(), drawn(5), drawn(6), first[3:] + first[:3], strict=True)
    for name, one, second, again, other, beside in draws:
        same(again, one, f"{name} after the same seed")
        for what, drawn_then in (("two replays", second), ("two seeds", other), ("two draws of a replay", beside)):
            same((drawn_then == one).all(), torch.tensor(False), f"{name}, whether {what} draw the same")


def pools(device: torch.device, same: Same) -> None:
    """Check that results of a graph with its own pool stay until its next replay, whatever other graphs do."""
    x = numbers(device, 0, 64)

    def work(by: float) -> Tensor:
        return (x * by).exp() + by

    made, kept = [captured(partial(work, by)) for by in (1.0, 2.0, 3.0)], []
    for graph, result in made:
        graph.replay()
        kept.append(result.clone())
    for number, (wanted, (_, result)) in enumerate(zip(kept, made, strict=True)):
        same(result, wanted, f"exp and add of graph {number}, after the replays of the others")
        same(result, work(number + 1.0), f"exp and add of graph {number}")


DEVICE_AND_HOST = "device and host, beyond 8 MiB each,"


def _grown(device: torch.device, before: Tensor | None = None) -> Tensor:
    """Return the bytes that the device and this process use, or those beyond ``before`` and 8 MiB."""
    gc.collect()
    _torch.npu.synchronize()
    _torch.npu.empty_cache()
    free, whole = _torch.npu.mem_get_info(device)
    now = torch.tensor([whole - free, host_bytes()])
    return now if before is None else (now - before - (8 << 20)).clamp_min(0)


def thousand_replays(device: torch.device, same: Same) -> None:
    """Replay 1,000 times without more memory of the device or the host, and a graph of 1,100 tasks once."""
    x, total = torch.ones(16, device=device), torch.zeros(16, device=device)
    graph, _ = captured(lambda: total.add_(x * 2))
    for _ in range(10):
        graph.replay()
    before = _grown(device)
    for _ in range(990):
        graph.replay()
    same(total, torch.full((16,), 2000.0), "what add_ sums, after 1,000 replays")
    same(_grown(device, before), torch.tensor([0, 0]), f"bytes by which {DEVICE_AND_HOST} grew in 990 replays")
    graph, _ = captured(lambda: [total.add_(1) for _ in range(1100)])  # as many kernels as a model of sixty layers has
    graph.replay()
    same(total, torch.full((16,), 3100.0), "what 1,100 additions of one graph sum")


def many_graphs(device: torch.device, same: Same) -> None:
    """Capture 300 graphs of two streams, one after another: resources of a graph, including streams, are reused."""
    x, side = numbers(device, 0, 16), _torch.npu.Stream()

    def work(by: int) -> Tensor:
        with forked(_torch.npu, side):
            y = x * by
        return y + 1

    before = torch.zeros(2)
    for number in range(300):
        graph, result = captured(partial(work, number))
        graph.replay()
        same(result, x * number + 1, f"mul and add of graph {number}")
        del graph, result
        if number == 9:
            before = _grown(device)
    same(_grown(device, before), torch.tensor([0, 0]), f"bytes by which {DEVICE_AND_HOST} grew in 290 graphs")


def thread(device: torch.device, same: Same) -> None:
    x = numbers(device, 0, 32)

    def work() -> tuple[Any, Any]:
        _torch.npu.set_device(device)
        return captured(lambda: x.exp() + 1, capture_error_mode="thread_local")

    with ThreadPoolExecutor(1) as threads:
        graph, result = threads.submit(work).result()
    for number in range(1, 3):
        x.copy_(numbers(device, number, 32))
        graph.replay()
        same(result, x.exp() + 1, f"replay {number}, exp and add")


def host_read(device: torch.device, same: Same) -> None:
    """Read a result on the host, or wait, during a capture: it is refused, and the device computes as before."""
    x, refused = numbers(device, 0, 32), 0
    reads: tuple[Callable[[Tensor], object], ...] = (
        *(lambda y: y.sum().item(), lambda y: y.cpu(), lambda y: y[y > 0]),
        *(lambda _: _torch.npu.current_stream().synchronize(), lambda _: _torch.npu.synchronize()),
    )
    for read in reads:
        graph = _torch.npu.NPUGraph()
        try:
            with _torch.npu.graph(graph):
                read(x * 2)
        except RuntimeError:
            refused += 1
    same(torch.tensor(refused), torch.tensor(5), "reads of the host, and waits, that a capture refuses")
    same(x * 2, x + x, "mul, eagerly, after refused captures")
    graph, result = captured(lambda: x * 3)
    graph.replay()
    same(result, x * 3, "mul, captured after refused captures")


def host_function(device: torch.device, same: Same) -> None:
    import torch_npu  # only there on an NPU

    x, calls = torch.zeros(4, device=device), list[int]()

    def work() -> None:
        x.add_(1)
        torch_npu.npu._launch_host_func(_torch.npu.current_stream(), calls.append, 1)  # noqa: SLF001 - its only name
        x.add_(1)

    graph, _ = captured(work)
    for _ in range(3):
        graph.replay()
    _torch.npu.synchronize()
    same(x, torch.full((4,), 6.0), "what add_ counts, after three replays")
    same(torch.tensor(len(calls)), torch.tensor(3), "calls of the host function")


def beside_eager_work(device: torch.device, same: Same) -> None:
    x, y, side = numbers(device, 0, 64), numbers(device, 1, 64), _torch.npu.Stream()
    graph, result = captured(lambda: torch.exp(x * 2))
    for number in range(1, 4):
        x.copy_(numbers(device, number, 64))
        side.wait_stream(_torch.npu.current_stream())
        graph.replay()
        with _torch.npu.stream(side):
            beside = (y + number) * 3
        _torch.npu.current_stream().wait_stream(side)
        same(result, (x * 2).exp(), f"replay {number}, mul and exp")
        same(beside, (y + number) * 3, f"eager work beside replay {number}")
    late, wide = numbers(device, 4, 64), torch.zeros(1024, 1024, device=device)
    with forked(_torch.npu, side):
        for _ in range(20):  # long enough for a replay elsewhere to come first
            torch.mm(wide, wide)
        x.copy_(late)
        graph.replay()
    same(result, (late * 2).exp(), "a replay in another stream")


def task_group(device: torch.device, same: Same) -> None:
    """Change a host argument by an update, which the replay waits for."""
    x, y, out = numbers(device, 0, 32), numbers(device, 1, 32), torch.empty(32, device=device)
    updating, graph, event = _torch.npu.Stream(), _torch.npu.NPUGraph(), _torch.npu.ExternalEvent()
    with _torch.npu.graph(graph):
        stream = _torch.npu.current_stream()
        event.wait(stream)
        event.reset(stream)
        _torch.npu.graph_task_group_begin(stream)
        torch.add(x, y, alpha=1, out=out)
        handle = _torch.npu.graph_task_group_end(stream)
        result = out * 2
    for factor in (2, 5, 3):
        x.copy_(numbers(device, factor, 32))
        expected = torch.add(x, y, alpha=factor) * 2
        graph.replay()  # waits for the event, which is recorded after the update
        with _torch.npu.stream(updating):
            _torch.npu.graph_task_update_begin(updating, handle)
            torch.add(x, y, alpha=factor, out=out)
            _torch.npu.graph_task_update_end(updating)
            event.record(updating)
        same(result, expected, f"replay after the update of add to {factor}")


WORKLOADS: dict[str, Callable[[torch.device, Same], None]] = {
    "perceptron": partial(
        model, lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)), (4, 16)
    ),
    "resnet50": partial(model, partial(ResNet50, 10), (1, 3, 32, 32)),
    **{
        each.__name__.replace("_", "-"): each
        for each in (
            *(vit_encoder, counter, copies, streams, growing_cache, training_step, grad_scaler, changed_weights),
            *(dropout, pools, thousand_replays, many_graphs, thread, host_read, host_function, beside_eager_work),
            task_group,
        )
    },
}
