"""verl as a subject: its rollout corrections, policy losses and batches.

In a ``conftest.py``, one import switches it on:

    from rlcheck.interop.verl import rlcheck_correction, rlcheck_expected_failures, rlcheck_policy_loss

Each correction is declared to equal the reference of the formula that verl documents. Read against verl 0.9.1;
what the checks find in it is expected to fail, each with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from rlcheck import corrections
from rlcheck.blackbox import declare
from rlcheck.corrections import Rule, RuleCorrection
from rlcheck.errors import RlcheckError
from rlcheck.interop.findings import expected_failures
from rlcheck.interop.padded import cut
from rlcheck.protocols import Correction, PolicyLoss
from rlcheck.rollouts import Rollouts, SamplingParams

MISSING = "verl is not installed: pip install 'rlcheck[verl]'"
GEOMETRIC = Rule("geometric", "reject", 0.999, 1.001)
K3 = Rule("geometric", "reject", upper=0.01, statistic="k3")
TOKEN_TIS = Rule("token", "truncate", upper=2.0)
SEQUENCE_TIS = Rule("sequence", "truncate", upper=2.0)

PRESETS: dict[str, RuleCorrection] = {
    "decoupled_token_is": corrections.from_name("tis"),
    "decoupled_seq_is": corrections.from_name("sequence_tis"),
    "decoupled_token_icepop": corrections.from_name("icepop"),
    "decoupled_seq_is_rs": RuleCorrection("seq_is_rs", (SEQUENCE_TIS, Rule("sequence", "reject", 0.5, 2.0))),
    "decoupled_geo_rs": RuleCorrection("geo_rs", (GEOMETRIC,)),
    "decoupled_geo_rs_token_tis": RuleCorrection("geo_rs_token_tis", (GEOMETRIC, TOKEN_TIS)),
    "decoupled_geo_rs_seq_tis": RuleCorrection("geo_rs_seq_tis", (GEOMETRIC, SEQUENCE_TIS)),
    "decoupled_k3_rs": RuleCorrection("k3_rs", (K3,)),
    "decoupled_k3_rs_token_tis": RuleCorrection("k3_rs_token_tis", (K3, TOKEN_TIS)),
    "decoupled_k3_rs_seq_tis": RuleCorrection("k3_rs_seq_tis", (K3, SEQUENCE_TIS)),
}
"""verl's decoupled presets at their defaults, each with what its documentation says it computes."""

LOGGED = {
    "k1": "rollout_corr/kl",
    "k3": "rollout_corr/k3_kl",
    "chi2_token": "rollout_corr/chi2_token",
    "log_ppl_diff": "rollout_corr/log_ppl_diff",
    "ppl_ratio": "rollout_corr/ppl_ratio",
}
"""What verl logs beside every correction, by our names; beside weights by token also their mean."""

UNEVEN_BOUNDS = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.6_1.4"}
REFUSES_EMPTY = "a batch without trained tokens raises ValueError"
BY_TOKEN = (
    "NaN in padding makes NaN weights there (times the mask, after exp), rollout_is_mean is that of capped "
    f"weights, {REFUSES_EMPTY}"
)
UNEVEN = "the bounds of token_k1 act on mu/pi_old: 0.6_1.4 keeps rho = 1.5 and rejects .65"
FINDINGS = {
    **{f"check_correction_properties[{name}]": REFUSES_EMPTY for name in PRESETS if "token" not in name},
    **{
        f"check_correction_properties[{name}]": BY_TOKEN for name in PRESETS if name.endswith(("token_is", "token_tis"))
    },
    "check_correction_properties[decoupled_token_icepop]": (
        "ZeroDivisionError where every weight is 0, as for one token with rho > 5; rollout_is_mean is that of "
        f"masked weights; {REFUSES_EMPTY}"
    ),
    "check_correction_properties[token_k1_0.6_1.4]": f"{UNEVEN}; {REFUSES_EMPTY}",
    "check_correction_follows_ratio[token_k1_0.6_1.4]": UNEVEN,
    "check_correction_bias_variance[token_k1_0.6_1.4]": UNEVEN,
}
rlcheck_expected_failures = expected_failures("verl", "0.9.1", FINDINGS)

AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean_token_mean": "seq-mean-token-mean",
    "sequence_mean_token_sum": "seq-mean-token-sum",
}


def correction(**settings: Any) -> Correction:
    """``compute_rollout_correction_and_rejection_mask`` with the given settings, as a ``Correction``.

    Settings as in verl: ``rollout_is``, ``rollout_is_threshold``, ``rollout_rs``, ``rollout_rs_threshold``, …
    """
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    def verl_correction(
        *, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        found, kept, logged = compute_rollout_correction_and_rejection_mask(
            old_log_prob=old_logprobs, rollout_log_prob=engine_logprobs, response_mask=mask, **settings
        )
        weights = mask.clone() if found is None else found.batch["rollout_is_weights"]
        by_token = settings.get("rollout_is") == "token"
        names = LOGGED | ({"mean_ratio": "rollout_corr/rollout_is_mean"} if by_token else {})
        metrics = {ours: logged[theirs] for ours, theirs in names.items()}
        return weights, kept if settings.get("rollout_rs") else mask, metrics

    return verl_correction


def preset(name: str) -> Correction:
    """One of ``PRESETS`` with verl's own settings, declared to equal its documented formula."""
    from verl.trainer.config.algorithm import RolloutCorrectionConfig

    config = getattr(RolloutCorrectionConfig, name)()
    names = ("rollout_is", "rollout_is_threshold", "rollout_is_batch_normalize", "rollout_rs", "rollout_rs_threshold")
    return declare(correction(**{name: getattr(config, name) for name in names}), like=PRESETS[name])


def uneven_rejection() -> Correction:
    """Token rejection with bounds .6 and 1.4, declared to accept rho = pi_old/mu in [.6, 1.4]."""
    bounds = corrections.from_name("k1_rejection", lower=0.6, upper=1.4, level="token")
    return declare(correction(**UNEVEN_BOUNDS), like=bounds)


def policy_loss(name: str = "vanilla", aggregation: str = "token_mean", **settings: Any) -> PolicyLoss:
    """A loss of verl's registry as a ``PolicyLoss``; ``settings`` are fields of its ``ActorConfig``."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig

    function = get_policy_loss_fn(name)

    def verl_loss(
        *,
        logprobs: Tensor,
        old_logprobs: Tensor,
        engine_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
        denominator: Tensor | None = None,
    ) -> Tensor:
        config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **settings)
        if denominator is not None:
            counted = "batch_num_tokens" if aggregation == "token_mean" else "global_batch_size"
            config.global_batch_info.update({"dp_size": 1, counted: denominator})
        loss, _ = function(
            old_log_prob=old_logprobs,
            log_prob=logprobs,
            advantages=advantages,
            response_mask=mask,
            loss_agg_mode=AGGREGATIONS[aggregation],
            config=config,
            rollout_is_weights=weights,
        )
        value: Tensor = loss
        return value

    return verl_loss


@pytest.fixture(params=[*PRESETS, "token_k1_0.6_1.4"])
def rlcheck_correction(request: pytest.FixtureRequest) -> Correction:
    """verl's presets, and a rejection with bounds that are not reciprocal."""
    pytest.importorskip("verl", reason=MISSING)
    return preset(request.param) if request.param in PRESETS else uneven_rejection()


@pytest.fixture(scope="session")
def rlcheck_policy_loss() -> PolicyLoss:
    """verl's default: PPO with dual clip, token mean."""
    pytest.importorskip("verl", reason=MISSING)
    return policy_loss()


def rollouts(data: Any, params: SamplingParams | None = None) -> Rollouts:
    """The rows of a verl ``DataProto`` (or of its ``batch``) after the log-probs were recomputed.

    Reads ``prompts`` (left-padded), ``responses``, ``attention_mask``, ``response_mask``, and where present
    ``rollout_log_probs``, ``old_log_probs``, ``advantages``, ``token_level_scores`` and ``uid``. Raises
    ``RlcheckError`` naming a tensor that is missing.
    """
    batch: Mapping[str, Tensor] = getattr(data, "batch", data)
    names = set(batch.keys())  # a TensorDict does not answer "in"
    for name in ("prompts", "responses", "attention_mask"):
        if name not in names:
            raise RlcheckError(f"the verl batch holds no {name}: convert it after generation, before it is popped")
    width = batch["prompts"].shape[1]
    real = batch["attention_mask"].bool()
    in_prompt, in_response = real[:, :width], real[:, width:]

    def tokens(name: str) -> list[Any] | None:
        return cut(batch[name], in_response) if name in names else None

    uid = getattr(data, "non_tensor_batch", {}).get("uid")
    return Rollouts.from_lists(
        prompt_ids=cut(batch["prompts"], in_prompt),
        response_ids=cut(batch["responses"], in_response),
        params=params,
        engine_logprobs=tokens("rollout_log_probs"),
        old_logprobs=tokens("old_log_probs"),
        mask=cut(batch["response_mask"].bool(), in_response) if "response_mask" in names else None,
        advantages=tokens("advantages"),
        reward=batch["token_level_scores"].sum(dim=1).tolist() if "token_level_scores" in names else None,
        group_id=None if uid is None else np.unique(uid, return_inverse=True)[1],
    )
