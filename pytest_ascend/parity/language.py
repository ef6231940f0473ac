"""A language model that continues texts on a device, token by token, compared with the CPU's float64 for its tokens."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.migration.target import TargetModel
from pytest_ascend.parity.ensemble import PERTURBATIONS, move
from pytest_ascend.parity.training import moved
from pytest_ascend.precision import Samples
from pytest_ascend.precision.capture import Autocast, casting
from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.precision.kernel_fallbacks import kernel_fallbacks, products_in_float32
from pytest_ascend.precision.orders import other_order
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.errors import UsageError

#: Number of generated tokens; further reference runs: with moved weights, and in other orders of summation.
TOKENS, MOVES, ORDERS = 6, 4, (0, 1)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A model's continuation of prompts, on the CPU.

    ``tokens`` (batch, new), ``logits`` (batch, new, vocabulary) and ``hidden``: the result of each layer by its name,
    at each computed position (batch, prompt + new - 1, width).
    """

    tokens: Tensor
    logits: Tensor
    hidden: Mapping[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        """Return hidden states and logits by name, in the order of computation."""
        return {**self.hidden, "logits": self.logits}


def continued(
    model: nn.Module, inputs: Mapping[str, Any], device: torch.device, autocast: Autocast, tokens: Tensor | None = None
) -> Continuation:
    """Continue the prompts on a device greedily with ``generate`` and its cache, or with the given ``tokens``."""
    code: Any = importlib.import_module("transformers")  # optional
    tensors = {name: each for name, each in inputs.items() if name != "labels" and isinstance(each, Tensor)}
    given = moved(device, next(model.parameters()).dtype, tensors)
    mask = given.get("attention_mask")
    if mask is not None and not bool(mask[:, -1].all()):
        # Padding moves to the left, away from the end of the text, in the tokens and in tensors of the same shape.
        for name in [name for name, each in given.items() if each.shape == mask.shape]:
            rows = zip(given[name], mask.sum(1), strict=True)
            given[name] = torch.stack([row.roll(len(row) - int(count)) for row, count in rows])
    mine: Any = model.to(device)
    # Replaces a checkpoint's own settings of sampling, lengths and ends.
    mine.generation_config = code.GenerationConfig(
        do_sample=False, max_new_tokens=TOKENS, pad_token_id=0, eos_token_id=None, use_cache=True
    )
    start = given["input_ids"].shape[1]

    def forced(seen: Tensor, scores: Tensor) -> Tensor:
        chosen = tokens[:, seen.shape[1] - start].to(scores.device)  # type: ignore[index]
        return torch.full_like(scores, -math.inf).scatter(1, chosen[:, None], 0.0)

    with torch.no_grad(), casting(device.type, autocast):
        made = mine.generate(
            **given,
            return_dict_in_generate=True,
            output_logits=True,
            output_hidden_states=True,
            logits_processor=code.LogitsProcessorList([] if tokens is None else [forced]),
        )
    steps = [torch.cat(list(each), 1) for each in zip(*made.hidden_states, strict=True)]
    padding = start - given["attention_mask"].sum(1) if "attention_mask" in given else torch.zeros(len(made.sequences))
    for number, each in enumerate(padding.tolist()):  # results at padding are not specified
        for step in steps:
            step[number, : int(each)] = 0
    # The sources of hidden states: embeddings, all layers but the last, and the norm after the last.
    count = len(steps) - 1
    lists = [name for name, each in model.named_modules() if isinstance(each, nn.ModuleList) and len(each) == count]
    stem = ([each for each in lists if "vis" not in each] or lists or ["layers"])[0]
    above = stem.rpartition(".")[0]
    first, last = (".".join(filter(None, (above, each))) for each in ("embed_tokens", "norm"))
    names = [first, *(f"{stem}.{number}" for number in range(count - 1)), last]
    hidden = {name: each.cpu() for name, each in zip(names, steps, strict=True)}
    return Continuation(made.sequences[:, start:].cpu(), torch.stack(list(made.logits), 1).cpu(), hidden)


def of_target(
    target: TargetModel,
    device: torch.device,
    dtype: torch.dtype,
    autocast: Autocast = None,
    tokens: Tensor | None = None,
) -> Continuation:
    """Return the continuation by a copy of a user's model, in evaluation mode and in a dtype."""
    return continued(copy.deepcopy(target.model).eval().to(dtype), target.kwargs, device, autocast, tokens)


@dataclass(frozen=True, slots=True)
class Generation:
    """A device's continuation, the float64 one of the same tokens, and reference runs of the same tokens."""

    actual: Continuation
    exact: Continuation
    reference_runs: Sequence[Continuation]
    #: The model in float64, whose head turns hidden states into logits.
    model: nn.Module

    @classmethod
    def of(cls, target: TargetModel, device: torch.device, dtype: torch.dtype, autocast: Autocast) -> Generation:
        """Compute all of them, for a user's model in a dtype. Raises UsageError for one that cannot generate text."""
        can = getattr(target.model, "can_generate", None)
        if not (callable(can) and can() and isinstance(target.kwargs.get("input_ids"), Tensor)):
            hint = "give a language model of transformers, with inputs as a mapping"
            raise UsageError(f"{target.name} has no generate(), or its inputs no input_ids", hint=hint)
        cpu, still = torch.device("cpu"), copy.deepcopy(target.model).eval().to(dtype)
        actual = of_target(target, device, dtype, autocast)
        wide = copy.deepcopy(still).double()
        with kernel_fallbacks([], wide=True):
            exact = continued(wide, target.kwargs, cpu, None, actual.tokens)

        def run(model: nn.Module) -> Continuation:
            return continued(model, target.kwargs, cpu, autocast, actual.tokens)

        with products_in_float32(), kernel_fallbacks([]):
            runs = [run(copy.deepcopy(still))]
            runs += [run(move(copy.deepcopy(still), f"move {each}", PERTURBATIONS[autocast])) for each in range(MOVES)]
            for number in ORDERS:
                with other_order(number):
                    runs.append(run(copy.deepcopy(still)))
        return cls(actual, exact, runs, wide)

    @property
    def best(self) -> Tensor:
        """Return the token with the largest float64 logit, at each position."""
        return self.exact.logits.argmax(-1)

    def behind(self) -> Tensor:
        """Return how far the float64 logit of each chosen token is below the largest (batch, new)."""
        chosen = self.exact.logits.gather(-1, self.actual.tokens[..., None])[..., 0]
        return self.exact.logits.amax(-1) - chosen

    def margin(self) -> Tensor:
        """Return how far correct devices may differ in the difference of two logits, at each position (batch, new)."""
        off = torch.stack([(each.logits.double() - self.exact.logits).abs().amax(-1) for each in self.reference_runs])
        ulp = torch.finfo(self.actual.logits.dtype).eps * self.exact.logits.abs().amax(-1)
        return 2 * (ALLOWANCES.element_ulps * ulp + ALLOWANCES.largest * off.amax(0))

    def judge(self, compare: PrecisionCompare) -> None:
        """Judge tokens, logits and hidden states. Raises Disagreement, which names token, margin and layer."""
        lost = (self.behind() - self.margin()).clamp(min=0)
        compare(lost, torch.zeros_like(lost), standard="binary", name="tokens", locate=self._where)
        compare(
            self.actual.tensors(),
            {name: each.double() for name, each in self.exact.tensors().items()},
            reference_runs=Samples(each.tensors() for each in self.reference_runs),
            name="generate",
            locate=self._where,
        )

    def _where(self, verdict: Verdict) -> str:
        """Name the first token that differs, with its margin, and the first layer with a wrong result."""
        found, differ = [], self.actual.tokens != self.best
        for place in differ.any(0).nonzero()[:1, 0].tolist():
            row = int(differ[:, place].nonzero()[0, 0])
            found.append(
                f"first token that differs: {place + 1} of sample {row}, {int(self.actual.tokens[row, place])} instead "
                f"of {int(self.best[row, place])}, whose logit is {float(self.behind()[row, place]):.3g} larger "
                f"({float(self.margin()[row, place]):.3g} allowed)"
            )
        if not verdict.path.startswith("tokens"):
            wrong = [each.path.partition("['")[2].removesuffix("']") for each in verdict.leaves if not each.agrees]
            return "; ".join([*found, f"first wrong layer: {wrong[0] or 'logits'}"])
        for name, actual in self.actual.tensors().items():
            exact = self.exact.tensors()[name]
            off = max(float((each.tensors()[name].double() - exact).norm()) for each in self.reference_runs)
            if not float((actual.double() - exact).norm()) <= ALLOWANCES.largest * off:
                return "; ".join([*found, f"first wrong layer: {name}"])
        return "; ".join([*found, "no layer is further off than reference runs"])

    def figures(self) -> Iterator[tuple[str, float | list[float]]]:
        """Yield the measurements of a language model, for the device and for the CPU in the same dtype."""
        model: Any = self.model
        margins = self.exact.logits.topk(2).values
        yield "equal_tokens", float((self.actual.tokens == self.best).double().mean())
        yield "smallest_margin", float((margins[..., 0] - margins[..., 1]).min())
        exact = self._log_probabilities(self.exact)
        for name, each in (("", self.actual), ("cpu_", self.reference_runs[0])):
            found = self._log_probabilities(each)
            yield f"{name}logprob_error_by_position", (found - exact).abs().amax(0).tolist()
            yield f"{name}perplexity_difference", float((-found.mean()).exp() - (-exact.mean()).exp())
            # For each layer, the mean divergence of its state's prediction from that of the float64 state.
            divergences, head = [], model.get_output_embeddings()
            for layer, state in each.hidden.items():
                with torch.no_grad():
                    logs, right = (head(of.double()).log_softmax(-1) for of in (state, self.exact.hidden[layer]))
                divergences.append(float((right.exp() * (right - logs)).sum(-1).mean().clamp(min=0)))
            yield f"{name}kl_by_depth", divergences

    def _log_probabilities(self, of: Continuation) -> Tensor:
        return of.logits.double().log_softmax(-1).gather(-1, self.actual.tokens[..., None])[..., 0]
