"""The faults that measurements point to: what each is called, and what to look at first."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """A kind of fault: what happened, and the remedy (what to look at first)."""

    title: str
    remedy: str


CAUSES: dict[str, Cause] = {
    "bad_record": Cause(
        "the record itself is malformed",
        "look at the code that fills the rollouts: the message names the column and the first row",
    ),
    "temperature": Cause(
        "one side applies the temperature and the other does not",
        "vLLM: --logprobs-mode processed_logprobs; trainer: divide the logits by T before the log-softmax",
    ),
    "truncated_sampling": Cause(
        "the engine renormalises over top-p/top-k/min-p survivors, the trainer over the whole vocabulary",
        "sample with top_p=1, top_k=-1, min_p=0, or give the trainer the same truncation",
    ),
    "shifted": Cause(
        "log-probs are one or more positions off",
        "check the slice logits[:, prompt-1:-1] against response ids, and what is dropped at the first or last token",
    ),
    "placeholder_logprob": Cause(
        "missing log-probs were filled with 0.0",
        "look for padding of log-prob lists; store NaN, or drop the row",
    ),
    "eos_logprob": Cause(
        "the closing token's log-prob is not the engine's",
        "look for EOS cut and re-appended with log-prob 0, and for a stop token that only one side keeps",
    ),
    "double_bos": Cause(
        "the two sides condition on different prompts (a second BOS, a lost token, another template)",
        "compare the prompt ids that the engine echoes with those the trainer scores",
    ),
    "dropout_on": Cause(
        "the trainer does not repeat itself: dropout is on, or its kernels are not deterministic",
        "call model.eval() before recomputing, and set attention_dropout and hidden dropout to 0 in the config",
    ),
    "batch_dependent": Cause(
        "a row's log-probs depend on the size of its batch or on its neighbours",
        "look for statistics over the batch (normalisation, expert capacity, quantisation scales); for bit-equality "
        "use batch-invariant kernels (VLLM_BATCH_INVARIANT=1)",
    ),
    "padding": Cause(
        "padding changes a row's log-probs",
        "check that the attention mask reaches every layer, and that slices count from the row's own end",
    ),
    "left_pad_positions": Cause(
        "left padding shifts absolute positions",
        "pass position_ids counted over real tokens: (attention_mask.cumsum(-1) - 1).clamp(min=0)",
    ),
    "packing_leak": Cause(
        "packed documents see each other",
        "restart position_ids at each document and pass its boundaries (cu_seqlens) to attention; check them by one",
    ),
    "train_forward_differs": Cause(
        "the forward of the loss is not the forward of the log-prob recompute",
        "compare train mode, autocast, packing and fused loss kernels of the two; a first policy ratio must be 1",
    ),
    "stale_prefix_cache": Cause(
        "cached prompts give other log-probs than fresh ones",
        "reset the prefix cache after every weight sync; check what its key leaves out (adapter, weights, salt)",
    ),
    "unfaithful_logprob": Cause(
        "tokens were not drawn from the distribution whose log-probs are reported",
        "compare the sampler's T, top-p, top-k and penalties with the log-prob mode; raw log-probs hide all of them",
    ),
    "hidden_sampling_defaults": Cause(
        "the model's generation_config changes sampling behind the request",
        "send every parameter explicitly, or serve with --generation-config vllm / --sampling-defaults openai",
    ),
    "stale_weights": Cause(
        "the engine still holds other weights than the trainer",
        "check that the weight sync ran after the last step and reached every rank and every tensor",
    ),
    "low_precision_head": Cause(
        "the LM head or the log-softmax runs in low precision",
        "upcast logits to fp32 before the log-softmax; run the LM head in fp32 where memory allows",
    ),
    "low_precision_logprob": Cause(
        "log-probs are stored in low precision",
        "keep log-probs in fp32 from the engine to the loss",
    ),
    "bad_log": Cause(
        "the episode log itself is malformed",
        "look at the code that writes the log: the message names the column and the first row",
    ),
    "capacity_after_resume": Cause(
        "more episodes are started than the staleness bound allows",
        "after a resume, look for counters of started episodes that begin at 0 while the version goes on",
    ),
    "stale_consumed": Cause(
        "episodes older than the bound are consumed, or finished ones vanish without a reason",
        "enforce the bound where a step takes its batch, not only at the start, and log a reason for every drop",
    ),
    "length_starved": Cause(
        "long episodes are discarded and sampled anew until a short one gets through",
        "keep an episode across versions, or train what is late; count how often each prompt is trained",
    ),
    "version_tags": Cause(
        "version tags are constant, those of the last token only, or of another episode",
        "tag each token with the version that sampled it, and carry tags through every sort and filter",
    ),
    "batch_reused": Cause(
        "the same episodes are trained again and again",
        "look for a queue that peeks instead of pops, or a buffer sampled with replacement; declare batch_reuse",
    ),
    "timeout_as_done": Cause(
        "timeouts and failures of the infrastructure are read as episodes that ended by themselves",
        "give them a status of their own, and keep failures out of rewards and baselines",
    ),
    "failure_length_bias": Cause(
        "failed episodes are dropped, and long ones fail most: what is trained is too short",
        "retry failed episodes, from a checkpoint where they are long, or weight by the chance to survive",
    ),
    "overlong_policy": Cause(
        "truncated episodes are not treated by the declared policy",
        "decide whether they stay in loss and baseline (keep), only in the baseline (mask) or nowhere (drop)",
    ),
    "simulator": Cause(
        "the simulated pipeline breaks a law of its design",
        "nothing is wrong with your stack; report the design (rlcheck_pipeline) and the seed",
    ),
    "band_inverted": Cause(
        "a band or cap is applied to mu/pi instead of pi/mu",
        "write the bounds for rho = pi_old/mu; with bounds such as 0.6 and 1.4 the two directions differ",
    ),
    "weight_not_detached": Cause(
        "the gradient flows through the correction weight",
        "detach the weight (or compute it under no_grad) before it multiplies the loss",
    ),
    "double_correction": Cause(
        "the move from mu to pi_theta is corrected twice",
        "with a policy ratio pi_theta/pi_old take the weight from pi_old/mu, never from the current policy",
    ),
    "denominator": Cause(
        "the loss is divided by another count of tokens than declared",
        "decide whether rejected tokens count: divide by the mask after, or before, the rejection",
    ),
    "broadcast": Cause(
        "tensors of different shapes were broadcast against each other",
        "give one number a row the shape (B, 1), never (B,); assert shapes before multiplying",
    ),
    "masked_nan": Cause(
        "the mask is multiplied on after exp, and 0 times inf is NaN",
        "fill masked entries (torch.where) before the subtraction and the exp, for the sake of the backward too",
    ),
    "capped_metric": Cause(
        "statistics of the ratio are taken after the cap",
        "log mean and quantiles of the raw ratio, so that they do not depend on the correction",
    ),
    "idle_clip": Cause(
        "the clip never holds the policy back: the policy ratio is always 1, or max stands for min",
        "check that old_logprobs are those of before the update, not recomputed with the current policy, and that the "
        "objective is min(r A, clip(r) A)",
    ),
    "masked_trains": Cause(
        "tokens outside the mask are trained, or enter a mean",
        "set weights to 0 outside the mask; mask before every sum and mean",
    ),
    "local_mean": Cause(
        "each micro-batch or rank divides by its own count, and the means are averaged",
        "divide by the global count of the step: pass it down as the denominator",
    ),
    "partial_group": Cause(
        "groups are found by a fixed stride, though some are incomplete",
        "group by the prompt's id and use each group's own size",
    ),
    "degenerate_std": Cause(
        "the rounding noise of equal rewards is taken for their spread",
        "give a group of equal rewards advantage 0 before dividing by its standard deviation",
    ),
    "double_normalised": Cause(
        "advantages are normalised twice, or with statistics that are not the group's",
        "normalise in one place, as declared",
    ),
    "empty_batch": Cause(
        "a micro-batch without trained tokens breaks the loss",
        "keep the graph alive with a sum times 0, and clamp the count to at least 1",
    ),
    "permuted_columns": Cause(
        "rewards, advantages or groups are in another order than the rows",
        "reorder every column together when batches are balanced or sorted",
    ),
    "numerics": Cause(
        "floating-point differences between two sets of kernels",
        "nothing is broken; a correction (truncated importance sampling) covers it, fp32 heads reduce it",
    ),
}


def describe(cause: str) -> str:
    """One line: the cause's id, what happened, and what to look at first."""
    title, remedy = CAUSES[cause]
    return f"{cause}: {title}; {remedy}"
