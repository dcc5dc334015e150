"""What the mismatch tests share: batches, and every metric written out the long way."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest

from rlcheck.mismatch import compare


def batch(seed, lengths, sigma=0.05, dtype=np.float32, keep=0.8):
    """Engine and trainer log-probs, offsets and mask."""
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    engine = -rng.exponential(1.0, offsets[-1])
    old = engine + rng.normal(0.0, sigma, offsets[-1])
    return engine.astype(dtype), old.astype(dtype), offsets, rng.random(offsets[-1]) < keep


def by_hand(engine, old, offsets, mask):
    """Every metric as its definition reads, row by row, on a batch that is finite inside the mask."""
    rows = [np.flatnonzero(mask[start:stop]) + start for start, stop in itertools.pairwise(offsets)]
    rows = [row for row in rows if len(row)]
    mu, pi = engine.astype(np.float64), old.astype(np.float64)
    d = (pi - mu)[mask]
    p, q = np.exp(mu[mask]), np.exp(pi[mask])
    ratio, a, diff = np.exp(d), np.abs(d), np.abs(q - p)
    mixture = np.log((p + q) / 2)
    to_mixture = [np.exp(x - mixture) - (x - mixture) - 1 for x in (mu[mask], pi[mask])]
    row_d = [(pi - mu)[row] for row in rows]
    sequence = np.exp([np.clip(x.sum(), -20, 20) for x in row_d])
    geometric = np.exp([x.mean() for x in row_d])
    row_error = np.array([np.exp(np.abs(x)).mean() for x in row_d])
    log_ppl = [np.array([-side[row].mean() for row in rows]) for side in (mu, pi)]
    gap = log_ppl[1] - log_ppl[0]
    expected = {
        "n": len(d),
        "rows": len(rows),
        "missing_share": 0,
        "support_share": 0,
        "mean": d.mean(),
        "mean_abs": a.mean(),
        "median_abs": np.median(a),
        "p99_abs": np.quantile(a, 0.99),
        "max_abs": a.max(),
        "std": d.std(),
        "std_abs": a.std(),
        "sequence_mean_abs": np.mean([np.abs(x).mean() for x in row_d]),
        "k1": (mu - pi)[mask].mean(),
        "k2": (d**2 / 2).mean(),
        "k3": (ratio - d - 1).mean(),
        "k3_reversed": (1 / ratio + d - 1).mean(),
        "jsd": (sum(to_mixture) / 2).mean(),
        "weighted_reverse_kl": (p * -d).mean(),
        "token_mult_prob_error": np.exp(a).mean(),
        "mean_prob_diff": diff.mean(),
        "max_prob_diff": diff.max(),
        "std_prob_diff": diff.std(),
        "prob_pearson": np.corrcoef(p, q)[0, 1] if len(d) > 1 else np.nan,
        "mean_ratio": ratio.mean(),
        "std_ratio": ratio.std(),
        "min_ratio": ratio.min(),
        "max_ratio": ratio.max(),
        "mean_ratio_deviation": np.abs(ratio - 1).mean(),
        "chi2_token": (ratio**2).mean() - 1,
        "ess_fraction_token": 1 / ((ratio / ratio.mean()) ** 2).mean(),
        "clamped_rows": sum(abs(x.sum()) > 20 for x in row_d),
        "chi2_sequence": (sequence**2).mean() - 1,
        "ess_fraction_sequence": 1 / ((sequence / sequence.mean()) ** 2).mean(),
        "training_ppl": np.exp(log_ppl[1]).mean(),
        "engine_ppl": np.exp(log_ppl[0]).mean(),
        "training_log_ppl": log_ppl[1].mean(),
        "engine_log_ppl": log_ppl[0].mean(),
        "log_ppl_diff": gap.mean(),
        "log_ppl_abs_diff": np.abs(gap).mean(),
        "max_log_ppl_diff": gap.max(),
        "min_log_ppl_diff": gap.min(),
        "ppl_ratio": np.exp(gap).mean(),
    }
    per_row = {
        "sequence_ratio": sequence,
        "geometric_ratio": geometric,
        "sequence_mult_prob_error": row_error,
    }
    for name, values in per_row.items():
        expected |= {f"{kind}_{name}": getattr(values, kind)() for kind in ("mean", "min", "max")}
    for prefix, values in {"share": ratio, "sequence_share": sequence}.items():
        expected |= {f"{prefix}_below_{edge}".replace(".", "_"): np.mean(values < edge) for edge in (0.9, 0.5)}
        expected |= {f"{prefix}_above_{edge}".replace(".", "_"): np.mean(values > edge) for edge in (1.1, 2, 5)}
    return expected


ROOTS = {"prob_pearson", "std", "std_abs", "std_ratio", "std_prob_diff"}  # may be roots of rounding errors


def assert_close(actual, expected, rel=1e-9, atol=1e-12, roots=1e-9):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        near = pytest.approx(value, rel=rel, abs=roots if name in ROOTS else atol, nan_ok=True)
        assert actual[name] == near, name


def metrics(*args, **options):
    return asdict(compare(*args, **options))
