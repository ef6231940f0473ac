"""Rows of ``operators.txt`` become kernels that read, fill and change what their declarations say."""

from __future__ import annotations

import ast
import builtins
import re
from importlib import import_module

import pytest
import torch

from pytest_ascend.emulator import kernels, rows
from pytest_ascend.emulator.registry import Family, Kernel, aten


def _kernel(declaration: str, expression: str) -> Kernel:
    family = Family("of a test")
    rows.add(family, declaration, expression, {"torch": torch, "aten": aten, "of": lambda n: lambda x, y: x + n * y})
    return family.kernels[0]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.sub",
        "torch.sub(*given)",
        "self - y",
        "of(-1)",
        "of(-1)(*given)",
        "a - b where a, b = self, y",
        "b where b = y.clone() where b[:] = self - y",
    ],
)
def test_what_an_expression_gives_is_the_output(expression: str) -> None:
    made = _kernel("aclnnA(Tensor self, Tensor y, out Tensor out)", expression)
    assert (made.into, made.body(torch.ones(2), torch.ones(2)).tolist()) == (False, [0, 0])


@pytest.mark.parametrize(
    "expression", ["torch.sub(*given, out=out)", "torch.sub(self, y, out=out)", "out.copy_(self - y)"]
)
def test_an_expression_with_out_fills_it(expression: str) -> None:
    made, out = _kernel("aclnnA(Tensor self, Tensor y, out Tensor total)", expression), torch.ones(2)
    made.body(torch.ones(2), torch.ones(2), out=out)
    assert (made.into, out.tolist()) == (True, [0, 0])


def test_a_tensor_named_out_that_is_changed_is_an_input() -> None:
    made, x = _kernel("aclnnA(Tensor y, inout Tensor out)", "out.add_(y)"), torch.ones(2)
    made.body(torch.ones(2), x)
    assert (made.into, x.tolist()) == (False, [2, 2])


def test_a_row_of_what_torch_lacks_is_left_out() -> None:
    family = Family("of a test")
    for expression in (
        "aten.no_such_name.default",
        "aten.no_such_name(x)",
        "aten.add.no_such_overload(x, out=out)",
        "y where y = aten.no_such_name(x)",
    ):
        rows.add(family, "aclnnA(Tensor x, out Tensor out)", expression, {"aten": aten})
    assert (family.kernels, family.left_out) == ([], ["aclnnA"] * 4)


def test_a_function_gets_the_inputs_that_it_names_and_no_other_tensor_may_be_given() -> None:
    family = Family("of a test")
    declaration = "aclnnA(Tensor x, Tensor scale, int64 mode, Tensor y, out Tensor out)"
    rows.add(family, declaration, "plus(**given)", {"plus": lambda y, x: x - y})
    (kernel,) = family.kernels
    assert kernel.body(torch.ones(1), None, 7, torch.zeros(1)).tolist() == [1]
    with pytest.raises(NotImplementedError, match="scale is not implemented"):
        kernel.body(torch.ones(1), torch.ones(1), 7, torch.zeros(1))


def test_each_expression_reads_names_that_there_are() -> None:
    wrong = []
    every = (declaration for pairs in rows.sections().values() for declaration, _ in pairs)
    operators = {declaration.partition("(")[0] for declaration in every}
    for section, pairs in rows.sections().items():
        family = section.partition(",")[0]
        module = import_module(f"{kernels.__name__}.{kernels.MODULE_OF.get(family, family)}")
        for declaration, expression in pairs:
            known = {*re.findall(r"\w+", declaration), *vars(module), *rows.COMMON, *vars(builtins), "given", "out"}
            known |= operators
            result, *steps = expression.split(" where ")
            tree = list(ast.walk(ast.parse("\n".join([*steps, result]))))
            known |= {each.arg for each in tree if isinstance(each, ast.arg)}
            named = [each for each in tree if isinstance(each, ast.Name)]
            known |= {each.id for each in named if isinstance(each.ctx, ast.Store)}
            read = {each.id for each in named}
            wrong += [f"{declaration}: {name}" for name in read - known]
    assert sum(map(len, rows.sections().values())) > 300
    assert not wrong
