import dataclasses
import math
from collections import OrderedDict, namedtuple

import msgspec
import numpy as np
import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import Samples, compare, explain
from pytest_ascend.records.verdict import Verdict


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple


def test_equal_tensors_agree_and_keep_their_figures():
    verdict = compare(torch.ones(3, 4), torch.ones(3, 4))
    assert verdict.agrees
    assert verdict.headline == "agrees"
    assert verdict.metrics["count"] == 12
    assert verdict.metrics["cosine"] == 1


def test_a_verdict_survives_the_run_log():
    verdict = compare({"a": torch.ones(3), "b": [torch.zeros(2)]}, {"a": torch.ones(3), "b": [torch.ones(2)]})
    assert msgspec.convert(msgspec.to_builtins(verdict.in_full()), Verdict) == verdict.in_full()
    assert [leaf.path for leaf in verdict.leaves] == ["output['a']", "output['b'][0]"]


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        (torch.ones(2), torch.ones(3), "shape: expected (3,), got (2,)"),
        (torch.ones(1), torch.ones(()), "shape: expected (), got (1,)"),
        (torch.ones(2).half(), torch.ones(2), "dtype: expected float32, got float16"),
        (torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.int64), "dtype: expected int64, got int32"),
        (torch.ones(2), torch.ones(2, dtype=torch.int64), "dtype: expected int64, got float32"),
        (torch.ones(2), torch.ones(2, dtype=torch.complex64), "dtype: expected complex64, got float32"),
    ],
)
def test_attributes_come_before_values(actual, expected, text):
    verdict = compare(actual, expected)
    assert not verdict.agrees
    assert text in verdict.headline
    assert text in "\n".join(explain(verdict))


def test_a_float64_reference_stands_for_every_floating_dtype_and_a_promise_decides():
    expected = torch.ones(3, dtype=torch.float64)
    assert compare(torch.ones(3).half(), expected).agrees
    assert not compare(torch.ones(3).half(), expected, dtype="float32").agrees
    assert not compare(torch.ones(3), expected, reference_runs=torch.ones(3).half()).agrees


def test_device_stride_and_requires_grad_are_judged_where_asked():
    transposed = torch.ones(2, 3).t()
    assert not compare(transposed, torch.ones(3, 2), stride=True).agrees
    assert compare(transposed, torch.ones(3, 2)).agrees
    assert compare(torch.ones(1, 3), torch.ones(3, 1).t(), stride=True).agrees
    assert "device" in compare(torch.ones(2), torch.ones(2), device="npu").headline
    assert "requires_grad" in compare(torch.ones(2), torch.ones(2), requires_grad=True).headline
    assert compare(torch.ones(2, requires_grad=True), torch.ones(2), requires_grad=True).agrees


def test_paths_lead_to_the_part_that_differs():
    pair = namedtuple("pair", "x y")
    expected = {"all": [Output(torch.ones(2), (torch.ones(1),)), pair(torch.ones(2), None)]}
    actual = {"all": [Output(torch.ones(2), (torch.zeros(1),)), pair(torch.ones(2), None)]}
    verdict = compare(actual, expected)
    assert verdict.headline.startswith("1 of 4 parts differ; output['all'][0].hidden[0]")


def test_parts_are_counted_where_there_are_several():
    right, wrong = torch.ones(2), torch.zeros(2)
    assert compare([wrong, right], [right, right]).headline.startswith("1 of 2 parts differ; output[0]: ")
    assert compare([wrong], [right]).headline.startswith("output[0]: ")


def test_a_mapping_may_stand_for_a_dataclass():
    assert compare(Output(torch.ones(2), ()), OrderedDict(logits=torch.ones(2), hidden=())).agrees


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        ([torch.ones(1)], [torch.ones(1)] * 2, "expected 2 parts, got 1; missing: 1"),
        ({"a": torch.ones(1), "c": 1}, {"a": torch.ones(1)}, "not expected: c"),
        (torch.ones(1), [torch.ones(1)], "expected list of 1, got a tensor"),
        (None, torch.ones(1), "expected a tensor, got None"),
        ("relu", "gelu", "expected 'gelu', got 'relu'"),
    ],
)
def test_other_structures_are_named(actual, expected, text):
    verdict = compare(actual, expected)
    assert not verdict.agrees
    assert text in verdict.message


def test_integers_are_exact_whatever_their_size():
    big = torch.tensor([2**62, 2**62 + 1])
    assert compare(big, big.clone()).agrees
    verdict = compare(big, big - 1)
    assert verdict.worst.actual == str(2**62)
    assert verdict.metrics["mismatches"] == 2
    assert not compare(torch.tensor([True]), torch.tensor([False])).agrees
    assert not compare(torch.tensor([64], dtype=torch.int8), torch.tensor([-64], dtype=torch.int8)).agrees


def test_complex_numbers_are_two_reals():
    expected = torch.tensor([1 + 1e-3j], dtype=torch.complex128)
    assert compare(torch.tensor([1 + 1e-3j]), expected).agrees
    assert not compare(torch.tensor([1 + 1.1e-3j]), expected, accumulation=1).agrees


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,)])
def test_empty_and_0d_tensors(shape):
    assert compare(torch.ones(shape), torch.ones(shape, dtype=torch.float64)).agrees
    assert compare(torch.ones(shape, dtype=torch.int64), torch.ones(shape, dtype=torch.int64)).agrees


def test_numbers_and_arrays_are_compared_as_well():
    assert compare(0.1 + 1e-9, 0.1).agrees
    assert not compare(0.11, 0.1).agrees
    assert compare(np.float32(0.1), np.array(0.1, dtype=np.float32)).agrees
    assert not compare(3, 4).agrees
    for stored in (np.arange(3.0)[::-1], np.arange(3.0)[::-1].astype(">f4")):
        assert compare(torch.tensor([2.0, 1.0, 0.0]), stored).agrees
        assert compare(stored, torch.tensor([2.0, 1.0, 0.0]).double()).agrees


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e8m0fnu"])
def test_formats_without_a_model_are_compared_bit_for_bit(name):
    right = torch.tensor([1.0, 2.0, math.nan]).to(getattr(torch, name, torch.float8_e5m2fnuz))
    assert compare(right, right.clone()).agrees
    assert compare(right.roll(1), right).headline.startswith("3 of 3 elements differ")


def test_gradients_without_memory_are_compared():
    x = torch.linspace(-2, 2, 5000, dtype=torch.float64, requires_grad=True)
    (zero,) = torch.autograd.grad(torch.sgn(x).sum(), x)
    assert zero._is_zerotensor()
    assert compare(torch.zeros(5000, dtype=torch.float64), zero).agrees
    assert compare(zero, torch.zeros(5000, dtype=torch.float64)).agrees
    assert not compare(torch.full((5000,), 1e-3), zero).agrees


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_of_equal_integers_and_other_scales_differ():
    right = torch.quantize_per_tensor(torch.arange(6.0), 1.0, 0, torch.quint8)
    assert compare(right, torch.quantize_per_tensor(torch.arange(6.0), 1.0, 0, torch.quint8)).agrees
    assert "scales" in compare(right, torch.quantize_per_tensor(2 * torch.arange(6.0), 2.0, 0, torch.quint8)).headline


def test_a_mapped_file_is_compared_without_loading_it_whole(tmp_path):
    np.arange(5000, dtype=np.float32).tofile(tmp_path / "expected")
    expected = np.memmap(tmp_path / "expected", dtype=np.float32, mode="r")
    assert compare(torch.arange(5000).float(), expected).agrees


@pytest.mark.parametrize("layout", ["transposed", "stepped", "expanded", "flipped", "channels_last"])
def test_every_layout_gives_the_same_figures(layout):
    base = torch.randn(6, 40, 50, 70)
    expected = {
        "transposed": base.transpose(1, 3),
        "stepped": base[:, ::2],
        "expanded": base[:, :1].expand(-1, 40, -1, -1),
        "flipped": base.flip(0),
        "channels_last": base.contiguous(memory_format=torch.channels_last),
    }[layout]
    actual = expected + 1e-3 * (expected > 2.5)
    strided, dense = compare(actual, expected), compare(actual.contiguous(), expected.contiguous())
    assert strided.metrics == pytest.approx(dense.metrics)
    assert strided.worst == dense.worst


def test_threads_and_chunks_change_nothing():
    actual = torch.randn(2_200_003)
    expected = actual.double()
    actual[2_100_000] += 1
    whole = compare(actual, expected)
    parts = [compare(actual[i : i + 1_100_000], expected[i : i + 1_100_000]) for i in (0, 1_100_000, 2_200_000)]
    assert whole.worst.index == (2_100_000,)
    assert whole.metrics["count"] == sum(part.metrics["count"] for part in parts)
    assert whole.metrics["max_abs"] == max(part.metrics["max_abs"] for part in parts)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"actual": object()}, "holds no numbers"),
        ({"actual": torch.ones(2, device="meta")}, "meta tensor"),
        ({"standard": "nonsense"}, "no standard 'nonsense'"),
        ({"reference_runs": torch.ones(3)}, "reference run output has shape (3,)"),
        ({"reference_runs": [[torch.ones(2)]]}, "several reference runs"),
        ({"reference_runs": object()}, "reference run output is object"),
        ({"accumulation": 0}, "accumulation is 0"),
        ({"accumulation": 1.5}, "accumulation is 1.5"),
        ({"accumulation": "many"}, "accumulation is 'many'"),
        ({"scale": -1.0}, "scale is -1.0"),
        ({"scale": math.nan}, "scale is nan"),
        ({"standard": ""}, "no standard ''"),
        ({"standard": 3}, "no standard 3"),
        ({"standard": ["binary"]}, "no standard ['binary']"),
        ({"limits": [1.0]}, "limits is [1.0]"),
        ({"limits": {"element_ulps": "1"}}, "element_ulps is '1'"),
        ({"limits": {"element_ulps": math.nan}}, "element_ulps is nan"),
        ({"limits": {"element_ulps": -1.0}}, "element_ulps is -1.0"),
        ({"limits": {"element_ulps": 9.0}, "waiver": "  "}, "the waiver is blank"),
        ({"stride": "abc"}, "stride is 'abc'"),
        ({"stride": (1, 2, 3)}, "for a tensor of 1 dimensions"),
        ({"requires_grad": "yes"}, "requires_grad is 'yes'"),
        ({"actual": np.array(["a"])}, "holds no numbers"),
        ({"actual": 2**70}, "no integer dtype holds"),
        ({"dtype": "float17"}, "no dtype 'float17'"),
        ({"limits": {"sprinkles": 1.0}}, "no limit 'sprinkles'"),
        ({"limits": {"element_ulps": 100.0}}, "looser"),
        ({"standard": "benchmark-ratio-L1"}, "second device"),
    ],
)
def test_senseless_input_is_one_clear_message(arguments, text):
    with pytest.raises(UsageError, match="hint:") as caught:
        compare(**{"actual": torch.ones(2), "expected": torch.ones(2), **arguments})
    assert text in str(caught.value)


def test_an_output_that_holds_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(UsageError, match="hold itself"):
        compare(endless, endless)


def test_a_looser_limit_with_a_reason_is_a_waiver_and_a_tighter_one_is_not():
    spoilt = torch.ones(3) + 3 * 2**-23
    loose = compare(
        spoilt, torch.ones(3).double(), accumulation=1, limits={"element_ulps": 5.0, "sums": 90.0}, waiver="why"
    )
    assert loose.agrees
    assert loose.waiver == "why"
    tight = compare(spoilt, torch.ones(3).double(), limits={"sums": 0.0, "sums_rms": 0.0})
    assert not tight.agrees
    assert tight.waiver == ""


def test_several_reference_runs_allow_what_any_of_them_shows():
    torch.manual_seed(0)
    expected = torch.randn(1000, dtype=torch.float64)
    quiet, loud = (expected + scale * torch.randn(1000) for scale in (1e-6, 1e-4))
    actual = (expected + 1e-4 * torch.randn(1000)).float()
    assert not compare(actual, expected, reference_runs=quiet.float()).agrees
    assert compare(actual, expected, reference_runs=Samples([quiet.float(), loud.float()])).agrees


@pytest.mark.parametrize("count", [100, 1024, 1025, 50_000])
@pytest.mark.parametrize("expected", [0.0, 1e-30, 1e-37], ids=["zero", "tiny", "smallest"])
@pytest.mark.parametrize("usual", [1.25, None], ids=["constant", "normal"])
def test_a_number_where_next_to_nothing_is_expected_is_seen_in_tensors_of_any_size(
    count: int, expected: float, usual: float | None
) -> None:
    right = torch.randn(count).double() if usual is None else torch.full((count,), usual).double()
    actual = right.float()
    right[count // 3] = expected
    actual[count // 3] = 0.5
    assert not compare(actual, right).agrees
    assert not compare(actual, right, reference_runs=right.float()).agrees
    assert compare(right.float(), right).agrees


def test_a_list_is_several_reference_runs_unless_it_is_one_of_a_nested_output():
    expected = torch.randn(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    run, noisy = expected.float(), (expected * (1 + 1e-5)).float()
    assert not compare(noisy, expected, reference_runs=run).agrees
    assert compare(noisy, expected, reference_runs=[run, noisy]).agrees
    pair, noisy_pair = [run, run], [noisy, noisy]
    assert not compare(noisy_pair, [expected] * 2, reference_runs=pair).agrees
    assert compare(noisy_pair, [expected] * 2, reference_runs=[pair, noisy_pair]).agrees
    assert compare([run, noisy], [expected] * 2, reference_runs=[run, noisy]).agrees


@pytest.mark.parametrize(("noise", "agrees"), [(1e-10, True), (1e-8, False)])
def test_a_second_jump_of_a_training_is_none_of_the_many_errors_that_a_mean_judges(noise, agrees):
    """AdamW makes a whole step from a gradient that is only rounding: not in every run, nor for the same elements."""
    generator = torch.Generator().manual_seed(0)

    def normal() -> torch.Tensor:
        return torch.randn(128, generator=generator, dtype=torch.float64)

    exact = 2.8e-5 * normal().sign() * (1 + 0.02 * normal())

    def run(*jumps: float, noise: float = 1e-10) -> torch.Tensor:
        changed = exact + noise * normal()
        changed[: len(jumps)] += torch.tensor(jumps)
        return changed.float()

    reference_runs = [run(2.5e-8), run(2.5e-8), run()]
    assert compare(run(2.5e-8, 8e-8, noise=noise), exact, reference_runs=reference_runs).agrees is agrees
