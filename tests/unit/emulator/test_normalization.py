"""The kernels of normalization that only an older torch_npu calls."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels import all_named
from pytest_ascend.emulator.kernels.normalization import batch_norm_gather_sums


def test_statistics_from_sums_of_ranks_are_those_of_the_whole_batch() -> None:
    x = torch.randn(7, 3, 2, 5, generator=torch.Generator().manual_seed(1)) + 2
    running = torch.ones(3), torch.full((3,), 3.0)
    expected = [each.clone() for each in running]
    _, mean, invstd = torch.native_batch_norm(x, None, None, *expected, True, 0.3, 1e-3)

    by_its_name = {each.name: each.body for each in all_named()}
    parts = map(by_its_name["BNTrainingReduce"], x.split([3, 4]))
    sums, squares = map(torch.stack, zip(*parts, strict=True))
    counts = torch.tensor([30, 40], dtype=torch.int32)
    by_name = by_its_name["SyncBatchNormGatherStats"](sums, squares, counts, *running, momentum=0.3, eps=1e-3)
    torch.testing.assert_close(by_name, (mean, invstd, *expected))
    assert running[0].tolist() == [1, 1, 1]

    found = batch_norm_gather_sums(sums, squares, counts, *running, 0.3, 1e-3)
    torch.testing.assert_close((*found, *running), (mean, invstd, *expected))
