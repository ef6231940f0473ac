"""The end of a program that reproduces a failure: the rule, the limit, exit code 0 or 1."""

from __future__ import annotations

from pytest_ascend.records.verdict import Verdict

#: A function of every program: the difference of two tensors by element. Equal infinities and NaN agree.
DIFFERENCE = """\
def difference(one, other):
    same = (one == other) | ((one != one) & (other != other))
    wide = torch.complex128 if one.is_complex() else torch.float64
    return torch.where(same, 0.0, (one.to(wide) - other.to(wide)).abs().nan_to_num(torch.inf, torch.inf))
"""

_ENDING = """\
one, other = actual[{place!r}], expected[{place!r}]
if one.shape != other.shape or not one.numel():
    raise SystemExit(one.shape != other.shape)
apart, near = difference(one, other), other.to(one.dtype)
out_of_place = (one.isnan() != near.isnan()) | (one.isinf() != near.isinf()) | (near.isinf() & (one != near))
{judging}
print(f"{{rule}}: {{found:.6g}}, allowed {{allowed:.6g}}: {{'passed' if found <= allowed else 'FAILED'}}")
raise SystemExit(not found <= allowed)
"""

#: The judge's rules that a program can apply by itself -> the figure that it compares with the limit.
_RULES = {
    "error of one element": "apart[{index}].item()",
    "error where zero is expected": "apart[{index}].item()",
    "root mean square error": "apart.square().mean().sqrt().item()",
    "elements that are not equal": "float((apart != 0).sum())",
    "elements that are not bitwise equal": "float((apart != 0).sum())",
}

#: For any other rule, the error is compared with the CPU's own in that dtype.
_ANY_RULE = """\
reference = difference({reference_runs}[{place!r}], other)
rule = "root mean square error, beside ten times the CPU's own"
found, allowed = (x.square().mean().sqrt().item() for x in (apart, reference))
wide = torch.complex128 if other.is_complex() else torch.float64
allowed = 10 * allowed + 1e-12 * other.to(wide).abs().nan_to_num(0, 0, 0).max().item()\
"""


def ending(
    place: int | str,
    index: tuple[int, ...] | None,
    rule: str,
    allowed: float,
    *,
    reference_runs: str,
    repeats: bool = False,
) -> str:
    """Return the last lines of a program that has ``actual`` and ``expected``, tensors by place.

    ``index`` is the worst element of the tensor at ``place``, None if the judge named none; ``rule`` is the rule that
    decided and ``allowed`` its limit, ``reference_runs`` an expression for the CPU's results in the dtype.
    With ``repeats`` the device is compared with itself, bit by bit.
    """
    if repeats:
        rule, allowed = "elements that are not equal", 0.0
    figure = _RULES.get(rule, "")
    if "where" in rule and "is expected" in rule and not figure:
        figure = "float(out_of_place[{index}])" if index is not None else "float(out_of_place.sum())"
    if not figure or ("{index}" in figure and index is None):
        judging = _ANY_RULE.format(reference_runs=reference_runs, place=place)
    else:
        judging = f"rule, found, allowed = {rule!r}, {figure.format(index=index)}, {allowed!r}"
    return _ENDING.format(place=place, judging=judging)


def worst_leaf(verdict: Verdict) -> Verdict:
    """Return the part whose figures a verdict repeats."""
    wrong = [each for each in verdict.leaves if not each.agrees]
    same = (each for each in wrong if each.worst == verdict.worst)
    return next(same, wrong[0] if wrong else verdict)
