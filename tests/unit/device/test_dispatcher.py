"""What the dispatcher is understood to say, shown on operators whose kernels are planted here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pytest_ascend.device import dispatcher
from pytest_ascend.device.dispatcher import kind

#: Operator: the dispatch keys under which it gets a kernel, and what it is then.
PLANTED = {
    "own": (("PrivateUse1",), "native"),
    "own_before_composite": (("PrivateUse1", "CompositeExplicitAutograd", "CPU"), "native"),
    "implicit": (("CompositeImplicitAutograd",), "composite-implicit"),
    "explicit": (("CompositeExplicitAutograd",), "composite-explicit"),
    "explicit_before_implicit": (("CompositeImplicitAutograd", "CompositeExplicitAutograd"), "composite-explicit"),
    "only_autograd": (("AutogradPrivateUse1", "CPU"), "fallback"),
    "autograd_of_composite": (("AutogradPrivateUse1", "CompositeExplicitAutograd"), "composite-explicit"),
    "on_cpu": (("CPU",), "fallback"),
    "on_cuda": (("CUDA",), "missing"),
    "nowhere": ((), "missing"),
    "sparse": (("SparsePrivateUse1",), "other-layout"),
    "quantized": (("QuantizedPrivateUse1",), "other-layout"),
    "sparse_and_cpu": (("SparsePrivateUse1", "CPU"), "fallback"),
    "delegates": (("CompositeExplicitAutogradNonFunctional",), "composite-nonfunctional"),
    "delegates.out": (("PrivateUse1",), "native"),
    "delegates_": (("CompositeExplicitAutogradNonFunctional",), "composite-nonfunctional"),
    "delegates_to_cpu": (("CompositeExplicitAutogradNonFunctional",), "fallback"),
    "delegates_to_cpu.out": (("CPU",), "fallback"),
    "delegates_to_nobody": (("CompositeExplicitAutogradNonFunctional",), "missing"),
    "delegates_to_nobody.out": ((), "missing"),
    "made_otherwise": (("CompositeExplicitAutogradNonFunctional",), "composite-nonfunctional"),
}
NAMESPACE = "ascend_dispatcher"


def _compute(*_: object, **__: object) -> None:
    raise AssertionError("nothing is to be computed")


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = torch.library.Library(NAMESPACE, "DEF")
    for name, (keys, _) in PLANTED.items():
        out = "*, Tensor(a!) out" if name.endswith(".out") else ""
        changed = "(a!)" if name.endswith("_") or out else ""
        self = "Tensor(a!) self" if name.endswith("_") else "Tensor self"
        library.define(f"{name}({', '.join(filter(None, [self, out]))}) -> Tensor{changed}")
        for key in keys:
            library.impl(name, _compute, key)
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def a_fallback_for_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every operator arrive somewhere on an NPU, as torch_npu's fallback takes what nothing else does."""
    arrives = dispatcher.arrives
    monkeypatch.setattr(dispatcher, "arrives", lambda name, key: key == dispatcher.OWN or arrives(name, key))
    kind.cache_clear()
    yield
    kind.cache_clear()


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_who_computes_is_told_by_the_kernels(name: str) -> None:
    assert kind(f"{NAMESPACE}::{name}") == PLANTED[name][1]


def test_without_a_fallback_what_has_no_kernel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "arrives", lambda name, key: key == "CPU")
    assert kind(f"{NAMESPACE}::on_cpu") == "missing"


def test_names_are_those_of_the_namespaces_sorted() -> None:
    names = dispatcher.names([NAMESPACE])
    assert names == sorted(f"{NAMESPACE}::{name}" for name in PLANTED)
    assert "aten::add.Tensor" in dispatcher.names(["aten", "npu"])


def test_a_dispatch_key_of_another_torch_is_none() -> None:
    """torch 2.1 has no key for CSR tensors of torch_npu's: asking for kernels there raised."""
    assert dispatcher.is_key(dispatcher.OWN)
    assert not dispatcher.is_key("SparseOfTomorrow")
