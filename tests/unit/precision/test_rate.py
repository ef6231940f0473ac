import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import pass_rate


def test_the_rate_and_the_distribution_over_samples():
    samples = [(torch.ones(4) * (1 + 0.1 * (i == 3)), torch.ones(4, dtype=torch.float64)) for i in range(10)]
    found = pass_rate(samples)
    assert (found.passed, found.rate) == (9, 0.9)
    assert found.figures["max_abs"][-1] == pytest.approx(0.1, rel=1e-6)
    assert any(line.startswith("sample 3:") for line in found.explain())


@pytest.mark.parametrize("samples", [[], [(1,)], None, [3]])
def test_senseless_samples_are_refused(samples):
    with pytest.raises(UsageError):
        pass_rate(samples)
