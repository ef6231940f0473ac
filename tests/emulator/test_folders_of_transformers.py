"""Models from folders of transformers: what is refused, what is built, and whether faults of a device are found."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_ascend.errors import UsageError
from pytest_ascend.migration import pretrained
from pytest_ascend.migration.target import TargetModel, refuse_unusable, target_model
from pytest_ascend.parity.language import Generation
from pytest_ascend.precision import models
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.inference.decoders import BASE, EPS, weights
from suites.inference.serving import ARCH, REQUESTS, prompt, served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")
ARCHITECTURES = ("llama", "qwen3", "qwen3_moe", "deepseek_v3", "qwen3_next", "internvl", "qwen3_vl")


def folder(path: Path, **settings: Any) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_configuration_of_any_size_gives_a_small_model_with_inputs(architecture: str, tmp_path: Path) -> None:
    if architecture not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {architecture}")
    given = target_model(folder(tmp_path, model_type=architecture))
    assert sum(each.numel() for each in given.model.parameters()) < pretrained.SMALL_FROM
    with torch.no_grad():
        made: Any = given.model(**given.kwargs)
    assert made.loss > 3
    assert made.logits.std() > 0.5  # a signal, not transformers' initial weights of 0.02


@pytest.mark.parametrize(
    ("settings", "files", "said"),
    [
        ({"model_type": "nowhere", "auto_map": {"AutoConfig": "a.B"}}, (), "code of its own, which is never run"),
        ({"model_type": "llama", "num_hidden_layers": "many"}, (), "no configuration of llama"),
        ({"model_type": "t5"}, (), "encodes one text and decodes another"),
        ({"model_type": "llama"}, ("pytorch_model.bin",), "a pickle may run code"),
        ({"model_type": "llama", "quantization_config": {}, "x": 1}, ("model.safetensors",), ""),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, ("model.safetensors",), "quantized weights"),
        ({"x": 1}, (), "names no model_type"),
    ],
)
def test_unusable_folders_are_refused(
    settings: dict[str, Any], files: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    name = folder(tmp_path, **settings)
    for each in files:
        (tmp_path / each).write_bytes(b"")
    if not said:
        return refuse_unusable(name)
    with pytest.raises(UsageError, match=said):
        refuse_unusable(name)
    return None


def test_weights_of_a_folder_are_read(tmp_path: Path) -> None:
    first = target_model(folder(tmp_path / "config", model_type="qwen3_moe")).model
    first.save_pretrained(tmp_path / "weights")  # type: ignore[operator]
    again = target_model(str(tmp_path / "weights")).model.state_dict()
    assert all(torch.equal(each, again[name]) for name, each in first.state_dict().items())


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> TargetModel:
    path = tmp_path_factory.mktemp("experts")
    return target_model(folder(path, model_type="qwen3_moe", vocab_size=151936))


def generated(target: TargetModel, dtype: torch.dtype = torch.float32) -> None:
    Generation.of(target, torch.device("npu"), dtype, None).judge(PrecisionCompare(note=lambda _: None))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_correct_device_is_not_accused(experts: TargetModel, dtype: torch.dtype) -> None:
    generated(experts, dtype)


def expert_dropped(of: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, states: Tensor, index: Tensor, weights: Tensor) -> Any:
        return of(self, states, index, weights.where(index != 3, 0))

    return forward


def interleaved(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def one_place_late(of: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, x: Tensor, position_ids: Tensor, *rest: Any, **kwargs: Any) -> Any:
        return of(self, x, position_ids - int(x.shape[1] == 1), *rest, **kwargs)

    return forward


def in_bfloat16(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, x: (x.bfloat16() @ self.weight.bfloat16().t()).to(x.dtype)


def padding_leaks(of: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, attention_mask: Any, **kwargs: Any) -> Any:
        rows, keys = attention_mask.shape[-2:]
        return of(self, *args, attention_mask=torch.ones_like(attention_mask).tril(keys - rows), **kwargs)

    return forward


#: Fault -> class or module, name, and the layer that is named.
FAULTS: dict[Any, tuple[str, str, str]] = {
    expert_dropped: ("Qwen3MoeExperts", "forward", "model.layers.0"),
    interleaved: ("", "rotate_half", "model.layers.0"),
    one_place_late: ("Qwen3MoeRotaryEmbedding", "forward", "model.layers.0"),
    padding_leaks: ("Qwen3MoeAttention", "forward", "model.layers.0"),
    in_bfloat16: ("lm_head", "forward", "logits"),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_a_fault_is_found_with_its_layer(fault: Any, experts: TargetModel, monkeypatch: pytest.MonkeyPatch) -> None:
    code = pytest.importorskip("transformers.models.qwen3_moe.modeling_qwen3_moe")
    owner_name, name, layer = FAULTS[fault]
    owner = torch.nn.Linear if owner_name == "lm_head" else getattr(code, owner_name) if owner_name else code
    right = getattr(owner, name)
    wrong = fault(right)

    def either(*args: Any, **kwargs: Any) -> Any:
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        is_head = owner_name != "lm_head" or args[0].out_features == 256
        return (wrong if is_head and tensors[0].device.type == "npu" else right)(*args, **kwargs)

    monkeypatch.setattr(owner, name, either)
    with pytest.raises(Disagreement, match=rf"first wrong layer: {layer}[;\n ]"):
        generated(experts)


def test_a_mixture_of_experts_is_compared_with_itself(experts: TargetModel) -> None:
    report = models(experts.model, copy.deepcopy(experts.model), device="npu", **experts.kwargs)
    assert report.agrees


def test_a_decoder_that_is_served_gives_the_tokens_of_transformers() -> None:
    """Pages, prompts in chunks beside decoding, and captured graphs; the same weights in transformers' Qwen3."""
    rope = {"rope_type": "yarn", "factor": ARCH.yarn, "original_max_position_embeddings": 64, "rope_theta": BASE}
    config = transformers.Qwen3Config(
        vocab_size=ARCH.vocabulary, hidden_size=ARCH.width, intermediate_size=ARCH.inner, head_dim=ARCH.size,
        num_hidden_layers=len(ARCH.mixers), num_attention_heads=ARCH.heads, num_key_value_heads=ARCH.kv_heads,
        rms_norm_eps=EPS, rope_parameters=rope, max_position_embeddings=256, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = transformers.Qwen3ForCausalLM(config).double().eval()
    theirs.load_state_dict(weights("server", ARCH))
    mine = served(torch.device("npu")).actual.tokens
    for number, (_, length, _) in enumerate(REQUESTS):
        given = torch.tensor([prompt(number, length)])
        made = theirs.generate(
            given, max_new_tokens=mine.shape[1], do_sample=False, eos_token_id=None, pad_token_id=0,
            attention_mask=torch.ones_like(given),
        )  # fmt: skip
        assert made[0, length:].tolist() == mine[number].tolist()
