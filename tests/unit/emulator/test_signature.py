"""Declarations of operators are read, and what cannot be read is quoted."""

import pytest

from pytest_ascend.emulator.signature import C_TYPES, Parameter, parse


def test_a_declaration_gives_roles_types_and_names() -> None:
    signature = parse("aclnnMatmul(Tensor self, Tensor mat2, out Tensor out, int8 cubeMathType)")
    assert signature.name == "aclnnMatmul"
    assert signature.parameters[1:] == (
        Parameter("in", "Tensor", "mat2"),
        Parameter("out", "Tensor", "out"),
        Parameter("in", "int8", "cubeMathType"),
    )
    assert [each.is_input for each in signature.parameters] == [True, True, False, True]


def test_an_operator_may_have_no_parameters() -> None:
    assert parse("aclnnNothing()").parameters == ()


@pytest.mark.parametrize("text", ["aclnnAdd", "aclnnAdd(Tensor)", "aclnnAdd(Tenser self)", "aclnnAdd(out self)"])
def test_what_cannot_be_read_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="aclnnAdd"):
        parse(text)


def test_every_type_has_an_expression_for_its_argument() -> None:
    assert all("{0}" in expression for _, expression in C_TYPES.values())
