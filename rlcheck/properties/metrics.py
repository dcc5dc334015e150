"""Whether the mismatch metrics that a correction logs are those of the raw ratios."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import torch

from rlcheck import mismatch
from rlcheck.blackbox import logged
from rlcheck.errors import RlcheckError, closest
from rlcheck.protocols import Correction
from rlcheck.strategies import LogprobBatch

SMALL = 1e-2  # below this, differences are absolute
ONE_ROW = (-0.5, 2.5, -0.2)  # log-ratios whose ratios are .607, 12.2 and .819: their mean is 4.54


def off_metrics(correction: Correction) -> dict[str, float]:
    """Largest relative difference of each metric that the correction logs from ``rlcheck.mismatch``, over batches.

    Raises ``RlcheckError`` for a name that ``docs/metrics.md`` does not define.
    """
    gaps: dict[str, float] = {}
    for batch in batches():
        ours = raw_metrics(batch)
        for name, value in logged(correction, **batch.inputs).items():
            if name not in ours:
                raise RlcheckError(f"the correction logs {name!r}: {closest(name, ours)} (docs/metrics.md)")
            gap = abs(value - ours[name]) / max(abs(ours[name]), SMALL)
            gaps[name] = max(gaps.get(name, 0.0), gap if np.isfinite(gap) else np.inf)
    return gaps


def raw_metrics(batch: LogprobBatch) -> dict[str, float]:
    """Every metric of ``rlcheck.mismatch`` on a padded batch."""
    kept = batch.mask.bool()
    offsets = np.concatenate([[0], kept.sum(dim=1).cumsum(0).numpy()])
    return asdict(mismatch.compare(batch.engine_logprobs[kept].numpy(), batch.old_logprobs[kept].numpy(), offsets))


def batches() -> Iterator[LogprobBatch]:
    """One row of three tokens with a ratio beyond any cap, and ragged rows with ordinary ratios."""
    row = torch.tensor([ONE_ROW])
    yield LogprobBatch(torch.full_like(row, -3.0), -3.0 - row, torch.ones_like(row))
    generator = torch.Generator().manual_seed(0)
    old, d = -3 + torch.randn(4, 6, generator=generator).clamp(max=2), torch.randn(4, 6, generator=generator)
    mask = (torch.arange(6) < torch.tensor([6, 2, 5, 3])[:, None]).float()
    yield LogprobBatch(old * mask, (old - d) * mask, mask)
