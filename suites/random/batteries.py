"""Batteries for random numbers: correlated calls and seeds, single bits, gaps, tails, rare and certain events.

The tests are those of published batteries (Knuth, TAOCP 2, 3.3.2: serial correlation, gaps; Marsaglia's DIEHARD:
birthday spacings; L'Ecuyer and Simard's TestU01: collisions), each with the p-value of a correct generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from ..runtime.rows import forked
from .statistics import Finding, chi_square
from .ways import gradients, in_all_views, seeds

T = torch.Tensor
#: What a row yields: findings with p-values, or a message about an impossible result.
Row = Callable[[torch.device], Iterator["Finding | str"]]
#: Size of a large tensor: more elements than 22 bits can count, and not a multiple of blocks.
LARGE = 2**22 + 4099
#: Seeds that differ in one bit; a generator on the CPU uses only their lower half (mt19937).
SEEDS = (0, 1, 2, 2**8, 2**16, 2**31, 2**33, 2**50, 2**62, 2**63, -1)


def _normal_tail(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def _poisson(what: str, count: int, mean: float) -> Finding:
    k, rate = torch.tensor(float(count), dtype=torch.float64), torch.tensor(mean, dtype=torch.float64)
    below = float(torch.special.gammaincc(k + 1, rate))
    above = float(torch.special.gammainc(k, rate)) if count else 1.0
    return Finding(f"{what}: {count:,} where {mean:,.6g} are to be expected", min(1.0, 2 * min(below, above)))


def _share(what: str, hits: T, p: float) -> Finding:
    mean, count = len(hits) * p, int(hits.sum())
    if min(mean, len(hits) - mean) < 1e5:
        return _poisson(what, count, mean) if p < 0.5 else _poisson(what, len(hits) - count, len(hits) - mean)
    return Finding(f"{what}: {count:,} of {len(hits):,}", _normal_tail((count - mean) / math.sqrt(mean * (1 - p))))


def _correlation(what: str, x: T, y: T) -> Finding:
    return Finding(what, _normal_tail(float(torch.dot(x, y)) / math.sqrt(len(x))))


def _fits(what: str, cells: T, shares: T) -> Finding:
    return Finding(what, chi_square(torch.bincount(cells, minlength=len(shares))[None], shares)[0])


def _even(what: str, cells: T, count: int) -> Finding:
    return _fits(what, cells, torch.full((count,), 1 / count, dtype=torch.float64))


def _ends(u: T, *ends: float, of: str = "") -> Iterator[Finding]:
    for end in ends:
        yield _poisson(f"{of}numbers in the lowest {end:.2g}", int((u < end).sum()), len(u) * end)
        yield _poisson(f"{of}numbers in the highest {end:.2g}", int((u >= 1 - end).sum()), len(u) * end)


def _of_uniform(x: T, share: Callable[[T], T] = torch.clone) -> Iterator[Finding]:
    """Test numbers that are uniform in [0, 1) after applying ``share``, their cumulative distribution function."""
    u, count = share(x.cpu().double()), len(x)
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    reach = math.sqrt(count) * float((u.sort().values - grid).abs().max())
    series = sum((-1) ** (k - 1) * math.exp(-2 * (k * reach) ** 2) for k in range(1, 40)) if reach > 0.3 else 0.5
    yield Finding("Kolmogorov-Smirnov", min(1.0, 2 * series))
    scaled = (u - 0.5) * math.sqrt(12)
    for lag in (1, 2, 3, 4, 8, 16, 32, 64, 256, 1024, 4096, 2**16, 2**20):
        yield _correlation(f"serial correlation at a distance of {lag:,}", scaled[:-lag], scaled[lag:])
    whole = (u * 2**22).long()
    for bit in range(22):
        yield _share(f"bit {bit} of 22", whole >> bit & 1, 0.5)
    gaps = ((u < 0.125).nonzero().flatten().diff() - 1).clamp(max=60)
    shares = torch.tensor([0.125 * 0.875**k for k in range(60)], dtype=torch.float64)
    shares = torch.cat([shares, 1 - shares.sum(0, keepdim=True)])
    yield _fits("gaps between small numbers", gaps, shares)
    spacings = whole[: 2**16].view(64, 1024).sort(-1).values.diff(dim=-1).sort(-1).values
    yield _poisson("birthday spacings that repeat", int((spacings.diff(dim=-1) == 0).sum()), 64 * 2**30 / (4 * 2**22))
    yield from _ends(u, *(2**-bits for bits in range(6, 23, 2)))
    # 23-bit numbers, which fill a significand, collide twice as often as 24-bit ones; fewer bits would show.
    collisions, most = 2**20 - len(torch.unique(u[: 2**20])), 2**40 / 2 / 2**23
    z = (collisions - most) / math.sqrt(most)
    yield Finding(f"equal numbers: {collisions:,}, {most:,.0f} with 23 bits", _normal_tail(z) if z > 0 else 1.0)


def _shared(x: T) -> int:
    """Return how often three consecutive 32-bit numbers recur in the rows, ignoring their signs."""
    words = x.view(torch.int32).long() & 0x7FFFFFFF
    three = (words[:, 2:] * 0x9E3779B1 + words[:, 1:-1]) * 0x85EBCA77 + words[:, :-2]
    return three.numel() - len(torch.unique(three))


def _one_call(device: torch.device) -> Iterator[Finding | str]:
    """Draw more than 2^16 numbers in a call: no repetitions, correct extremes, and selections in random order."""
    count = 2**17 + 4099
    for name, x in (("rand", torch.rand(count, device=device)), ("randn", torch.randn(count, device=device))):
        if shared := _shared(x.cpu()[None]):
            yield f"{name}: {shared:,} times, the same three numbers in a row, or their negatives"
        u = (x if name == "rand" else torch.special.ndtr(x.cpu())).cpu().double()
        yield _even(f"{name} in 64 cells", (u * 64).long().clamp(0, 63), 64)
        yield from _ends(u, 2**-8, 2**-12, of=f"{name}: ")
        if name == "rand" and not bool((u < 1).all()):
            yield "rand: 1 is no number below 1"
    for name, mask in (("dropout", F.dropout(torch.ones(2**17, device=device))),
                       ("bernoulli_", torch.empty(2**17, device=device).bernoulli_())):  # fmt: skip
        blocks = ((mask.cpu() != 0).long().view(-1, 64) << torch.arange(64)).sum(1)
        if alike := len(blocks) - len(torch.unique(blocks)):
            yield f"{name}: {alike:,} blocks of 64 choices are others once more"
    row = torch.full((1, 64), 0.5, device=device).expand(512, 64)
    for name in ("rand_like", "randn_like", "bernoulli", "dropout"):
        if alike := 512 - len(torch.unique(getattr(F if name == "dropout" else torch, name)(row).cpu(), dim=0)):
            yield f"{name}: of an expanded tensor, {alike} of 512 rows are others once more"
    chosen = torch.multinomial(torch.ones(2**12, 8, device=device), 4, replacement=False).cpu()
    yield _even("the first of four classes that are drawn together", chosen[:, 0], 8)


#: Functions that draw as many numbers as a tensor has, and may take a generator; those with "_" write them into it.
_DRAWN: Mapping[str, Callable[..., T]] = {
    **{name: partial(lambda x, name, **how: getattr(torch, name)(x.shape, device=x.device, **how), name=name)
       for name in ("rand", "randn")},
    "randint": lambda x, **how: torch.randint(2**24, x.shape, dtype=torch.int32, device=x.device, **how),
    "randperm": lambda x, **how: torch.randperm(x.numel(), device=x.device, **how),
    "normal": lambda x, **how: torch.normal(x, 1.0, **how),
    "bernoulli": torch.bernoulli,
    "multinomial": lambda x, **how: x.multinomial(x.numel(), **how),
    "dropout": lambda x, **_: F.dropout(x),
    **{name: partial(lambda x, name, **how: getattr(x, name)(**how), name=name)
       for name in ("normal_", "uniform_", "exponential_", "bernoulli_", "random_")},
}  # fmt: skip


def _calls(device: torch.device, count: int) -> Iterator[Finding | str]:
    """Draw in several calls and with several seeds: no three consecutive numbers may be shared."""
    halves = torch.full((count + 3,), 0.5, device=device)
    for name in ("rand", "randn", "normal_", "randint"):
        drawn = []
        for seed in SEEDS if device.type != "cpu" else SEEDS[:6]:
            torch.manual_seed(seed)
            drawn += [_DRAWN[name](halves.clone()).cpu()[:count] for _ in range(3 if seed == 1 else 1)]
        if shared := _shared(torch.stack(drawn)):
            yield f"{name}: {shared:,} times, two calls or seeds give the same three numbers in a row"
        x = torch.stack(drawn).double()
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        for i in range(len(x)):
            for j in range(i):
                yield _correlation(f"{name}: correlation of calls {j} and {i}", x[i], x[j])
                yield _correlation(f"{name}: correlation of calls {j} and {i}, shifted", x[i][1:], x[j][:-1])


def _small_calls(device: torch.device, count: int = 150) -> Iterator[str]:
    """Make many small calls: no two may give the same numbers, and drawing must not affect the CPU's generator."""
    halves = torch.full((99,), 0.5, device=device)  # of fewer choices, two calls in thousands may agree by chance
    for name, draw in _DRAWN.items():
        torch.manual_seed(2025)
        before = torch.get_rng_state()  # of the CPU's generator
        drawn = [draw(halves.clone()) for _ in range(count)]
        if device.type != "cpu" and not torch.equal(torch.get_rng_state(), before):
            yield f"{name}: to draw on the device changes what is drawn on the CPU"
        for seed in range(count // 5):  # neighbours, as in seed + rank: a later call must not be the first of another
            torch.manual_seed(seed)
            drawn += [draw(halves.clone()) for _ in range(5)]
        torch.manual_seed(0)
        if not torch.equal(draw(halves.clone()), drawn[count]):
            yield f"{name}: other numbers after the seed 0, the second time"
        if alike := len(drawn) - len(torch.unique(torch.stack(drawn).cpu().double(), dim=0)):
            yield f"{name}: of {len(drawn):,} small calls, {alike} give what another one gave"
    for size in (1, 3, 17):  # the last of an odd count, where numbers are generated in pairs
        last = torch.cat([torch.randn(size, device=device)[-1:] for _ in range(100)]).cpu()
        if len(torch.unique(last)) < 90:
            yield f"randn: the last of {size} numbers is mostly the same"


def _probabilities(device: torch.device) -> Iterator[Finding]:
    ones = torch.ones(2**21, device=device)
    for p in (25.5 / 256, 0.5 + 0.5 / 256, 1 - 7.5 / 256, 1e-4, 1 - 1e-4):
        yield _share(f"bernoulli_({p:.6g})", ones.clone().bernoulli_(p).cpu(), p)
        yield _share(f"bernoulli of a tensor of {p:.6g}", torch.bernoulli(ones * p).cpu(), p)
        yield _share(f"dropout({p:.6g})", (F.dropout(ones, p) == 0).cpu(), p)


def _by_generators(device: torch.device) -> Iterator[str]:
    """Draw with generators of equal seeds, also on the last card, and into every second column."""
    count = 1 if device.type == "cpu" else getattr(torch, device.type).device_count()
    kinds = {name: draw for name, draw in _DRAWN.items() if name != "dropout"}  # which takes no generator
    for where in (device, torch.device(device.type, count - 1))[: min(count, 2)]:
        for name, draw in kinds.items():
            x, own = (torch.full((65, 2), 0.5, device=where) for _ in range(2))
            torch.manual_seed(5)
            first = draw(x[:, 1]).cpu()
            if len(torch.unique(first)) == 1:
                yield f"{name} on {where}: a view keeps what it had, or gets one number everywhere"
            torch.manual_seed(5)
            mine, again = (draw(own[:, 1], generator=torch.Generator(where).manual_seed(6)).cpu() for _ in range(2))
            if not torch.equal(draw(x[:, 1]).cpu(), first):
                yield f"{name} on {where}: other numbers after the same seed, with a generator of one's own between"
            if not torch.equal(mine, again):
                yield f"{name} on {where}: two generators of one seed give other numbers"
            if not bool((x[:, 0] == 0.5).all() and (own[:, 0] == 0.5).all()):
                yield f"{name} on {where}: what lies between the numbers of a view is changed"
            maker, other = torch.Generator(where).manual_seed(6), torch.Generator(where)
            draw(x[:, 1], generator=maker)
            other.set_state(maker.get_state())
            goes_on = torch.equal(draw(x[:, 1], generator=maker).clone(), draw(x[:, 1], generator=other))
            if not goes_on or maker.initial_seed() != 6:
                yield f"{name} on {where}: a generator does not go on from the state of another, or tells another seed"


def _in_turn(device: torch.device) -> Iterator[str]:
    """Draw in turn on two streams, in two threads, and with and without gradients: the sequence is the same."""
    if device.type == "cpu":
        return
    backend, given = getattr(torch, device.type), torch.full((4099,), 0.5, device=device)
    side = backend.Stream()

    def elsewhere(draw: Callable[[T], T]) -> T:
        with forked(backend, side):  # what it draws is copied in the usual stream
            return draw(given.clone())

    ways: Mapping[str, Callable[..., T]] = {
        "once more": lambda draw: draw(given.clone()),
        "for what asks for a gradient": lambda draw: draw(given.clone().requires_grad_() * 1).detach(),
        "without gradients": lambda draw: torch.no_grad()(draw)(given.clone().requires_grad_() * 1),
        "in inference mode": lambda draw: torch.inference_mode()(lambda: draw(given.clone()))(),
        "in two streams in turn": elsewhere,
        "in two threads in turn": lambda draw: pool.submit(draw, given.clone()).result(),
    }
    with ThreadPoolExecutor(1, initializer=partial(backend.set_device, device)) as pool:
        for name, draw in _DRAWN.items():
            found = list[T]()
            for way in ways.values():
                torch.manual_seed(5)
                found.append(torch.stack([(way(draw) if turn % 2 else draw(given.clone())).cpu() for turn in range(4)]))
            for said, numbers in zip(ways, found, strict=True):
                if not torch.equal(numbers, found[0]) or len(torch.unique(numbers, dim=0)) < len(numbers):
                    yield f"{name}: {said}, other numbers are drawn, or the same again"


def _by_card(device: torch.device) -> Iterator[str]:
    """Draw on several cards: each has its own sequence."""
    if device.type == "cpu":
        return
    backend = getattr(torch, device.type)
    cards = range(backend.device_count())

    def seed_apart() -> None:
        for card in cards:
            with backend.device(card):
                backend.manual_seed(7 + card)

    def rows(seed: Callable[[], object]) -> T:
        seed()
        return torch.stack([torch.rand(99, device=f"{device.type}:{card}").cpu() for card in cards])

    states = backend.get_rng_state_all()
    torch.rand(99, device=device)
    changed = [torch.equal(*each) for each in zip(states, backend.get_rng_state_all(), strict=True)].count(False)
    if changed > 1:
        yield "to draw on one card changes what another one draws"
    if not torch.equal(*(rows(partial(backend.set_rng_state_all, states)) for _ in range(2))):
        yield "set_rng_state_all() does not have all cards draw again what they drew"
    alike, apart = rows(partial(backend.manual_seed_all, 7)), rows(seed_apart)
    if len(torch.unique(alike, dim=0)) > 1 or not torch.equal(apart[0], alike[0]):
        yield "cards of the same seed draw different numbers"
    if len(torch.unique(apart, dim=0)) < len(cards):
        yield "a card draws by the seed of another one"
    if len({(backend.seed(), backend.initial_seed()) for _ in range(9)}) < 9:
        yield "seed() gives the same seed again"


def _sure(device: torch.device) -> Iterator[str]:
    """Check certain outcomes: probabilities of 0 and 1, classes of weight zero, ranges of a single number."""
    ones = torch.ones(2**18 + 5, device=device)
    weights, never = torch.ones(5003, device=device), [0, 1, 499, 1023, 1024, 4095, 4096, 5001, 5002]
    weights[never] = 0
    turns = (torch.arange(4099, device=device) % 3 == 1).float()
    itself, transposed = turns.clone(), turns[:4096].view(32, 128).T
    leaf = ones.clone().requires_grad_()
    wanted: Mapping[str, tuple[T, T]] = {
        "bernoulli_(1)": (ones.clone().bernoulli_(1.0), ones),
        "bernoulli_(0)": (ones.clone().bernoulli_(0.0), ones * 0),
        "bernoulli of ones": (torch.bernoulli(ones), ones),
        "bernoulli of zeros": (torch.bernoulli(ones * 0), ones * 0),
        "dropout(1)": (F.dropout(ones, 1.0), ones * 0),
        "dropout(0)": (F.dropout(ones, 0.0), ones),
        "gradient of dropout(1)": (torch.autograd.grad(F.dropout(leaf, 1.0).sum(), leaf)[0], ones * 0),
        "bernoulli of zeros and ones": (torch.bernoulli(turns), turns),
        "bernoulli_ of zeros and ones": (torch.empty_like(turns).bernoulli_(turns), turns),
        "bernoulli_ of the tensor itself": (itself.bernoulli_(itself), turns),
        "bernoulli of what is transposed": (torch.bernoulli(transposed), transposed),
        "normal of means that are transposed": (torch.normal(transposed, transposed * 0), transposed),
        "normal of transposed deviations": ((torch.normal(transposed * 0, transposed) != 0).float(), transposed),
        "normal of means without deviation": (torch.normal(turns * 9, torch.zeros_like(turns)), turns * 9),
        "normal of means, near each": (torch.normal(turns * 1e6, 1.0).div(1e6).round(), turns),
        "normal of deviations, of the same mean": ((torch.normal(0.0, turns) != 0).float(), turns),
        "a class of each row": (
            torch.eye(9, device=device).flip(0).multinomial(1)[:, 0],
            ones[:9].cumsum(0).flip(0) - 1,
        ),
        "randint of one number": (torch.randint(5, 6, (4099,), device=device), torch.full((4099,), 5, device=device)),
        "randperm of two": (torch.randperm(2, device=device).sort().values, torch.arange(2, device=device)),
        "a class of probability 1": (torch.multinomial(torch.eye(9, device=device)[7], 1), ones[:1].long() * 7),
        "all classes that can be drawn": (torch.multinomial(weights, 4994).sort().values, weights.nonzero().flatten()),
    }
    for name, (found, right) in wanted.items():
        if wrong := int((found.cpu() != right.cpu()).sum()):
            yield f"{name}: {wrong} numbers cannot be"
    if not (torch.equal(turns.cpu(), (torch.arange(4099) % 3 == 1).float()) and bool((leaf == 1).all())):
        yield "bernoulli, normal or dropout changes the tensor that it draws by"
    drawn = torch.multinomial(weights, 2**18, replacement=True).cpu()
    if wrong := int(torch.isin(drawn, torch.tensor(never)).sum()):
        yield f"multinomial: {wrong} draws of classes with probability 0"
    yield from _by_generators(device)


def _classes(device: torch.device) -> Iterator[Finding]:
    weights = (torch.arange(5003.0) % 37 + 4.25) * (torch.arange(5003) % 5 != 0)
    shares = (weights.double() / weights.double().sum())[weights > 0]
    # Weights need not add up to 1: these add up to less, those of the rows below to more. Sums of many in half
    # precision round, on a GPU too (at::cumsum in MultinomialKernel.cu), and are not asked for.
    drawn = torch.multinomial((weights / 2**18).to(device), 2**20, replacement=True).cpu()
    counts = torch.bincount(drawn, minlength=5003)[weights > 0]
    yield Finding("classes", chi_square(counts[None], shares)[0])
    few = torch.arange(1.25, 5)
    p, many = few.double() / few.sum(), few.to(device).expand(2**16, 4)
    yield _fits("classes by row", torch.multinomial(many, 1).cpu().flatten(), p)
    pairs = torch.multinomial(many, 2).cpu()
    shares = (p[:, None] * p / (1 - p[:, None])).fill_diagonal_(0)  # the second is drawn after removing the first
    cells = ((shares > 0).flatten().cumsum(0) - 1)[pairs[:, 0] * 4 + pairs[:, 1]]
    yield _fits("pairs of classes without replacement", cells, shares[shares > 0])


def _wide(device: torch.device) -> Iterator[Finding | str]:
    ranges = (
        *((-3, 61), (0, 3008), (0, 40000), (5, 60037), (0, 100032), (0, 2**30), (0, 5 * 2**30)),
        *((-(2**62), 2**62), (0, 2**63 - 1), (-5, 2**33 + 5), (0, 3 * 2**40), (-(2**31), 2**31)),
        # Up to 2.6 PyTorch itself takes the remainder of 32 bits (pytorch/pytorch, issue 148175).
        *([(0, 3 * 2**30)] if torch.__version__ >= "2.7" else []),
    )
    all_of = {
        each: (torch.iinfo(each).min, torch.iinfo(each).max + 1) for each in (torch.uint8, torch.int8, torch.int16)
    }
    for dtype, (low, high) in (*((torch.int64, each) for each in ranges), *all_of.items()):
        x = torch.randint(low, high, (2**18,), device=device, dtype=dtype).cpu().long()
        if bool(((x < low) | (x >= high)).any()):
            yield f"randint({low}, {high}) gives numbers outside"
        wide = high - low >= 2**56
        cells = ((x.double() - low) / (float(high) - low) * 64).long() if wide else (x - low) * 64 // (high - low)
        yield _even(f"randint({low}, {high})", cells.clamp(0, 63), 64)
        if (high - low) % 64 == 0:
            yield _even(f"the last bits of randint({low}, {high})", x % 64, 64)


def _permutations(device: torch.device) -> Iterator[Finding | str]:
    few = torch.stack([torch.randperm(6, device=device) for _ in range(600)]).cpu()
    yield _poisson("permutations of six that change nothing", int((few == torch.arange(6)).all(1).sum()), 600 / 720)
    for place in (0, 5):
        yield _even(f"place {place} of six", few[:, place], 6)
    count = 2**19 + 7
    many = torch.randperm(count, device=device).cpu()
    if not torch.equal(many.sort().values, torch.arange(count)):
        yield f"randperm({count}) has a number twice"
    yield _poisson("numbers that stay in their place", int((many == torch.arange(count)).sum()), 1.0)
    rises = int((many.diff() > 0).sum())
    yield Finding(f"{rises:,} numbers rise", _normal_tail((rises - (count - 1) / 2) / math.sqrt((count + 1) / 12)))
    scaled, where = (((each.double() + 0.5) / count - 0.5) * math.sqrt(12) for each in (many, torch.arange(count)))
    yield _correlation("correlation of numbers with their places", scaled, where)


#: Subject -> level, and the function that yields the findings.
BATTERIES: Mapping[str, tuple[str, Row]] = {
    "calls-and-seeds": ("smoke", partial(_calls, count=2**14)),
    "more-calls-and-seeds": ("standard", partial(_calls, count=2**18)),
    "one-call": ("smoke", _one_call),
    "small-calls": ("smoke", _small_calls),
    "more-small-calls": ("standard", partial(_small_calls, count=2000)),
    "streams-and-cards": ("smoke", lambda device: chain(_in_turn(device), _by_card(device))),
    "sure-events": ("smoke", _sure),
    "probabilities": ("standard", _probabilities),
    "classes": ("standard", _classes),
    "wide-ranges": ("smoke", _wide),
    "permutations": ("smoke", _permutations),
    "views-and-sizes": ("standard", in_all_views),
    "gradients": ("standard", gradients),
    "seeds": ("smoke", seeds),
    "large-uniform": ("standard", lambda device: _of_uniform(torch.rand(LARGE, device=device))),
    "large-normal": ("standard", lambda device: _of_uniform(torch.randn(LARGE, device=device), torch.special.ndtr)),
    "large-exponential": (
        "full",
        lambda device: _of_uniform(torch.empty(LARGE, device=device).exponential_(2.0), lambda x: -torch.expm1(-2 * x)),
    ),
}
