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
    "stale_scores": Cause(
        "scores do not follow the tokens that were asked for",
        "look for results cached by row, uid or length; a comparison of cached answers proves nothing",
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
    "top1_logprob": Cause(
        "the log-prob stored is that of the most likely token, not of the sampled one",
        "look the sampled id up in the returned log-probs; never take the first entry",
    ),
    "logprob_scaled": Cause(
        "log-probs are divided by the temperature instead of logits",
        "divide the logits by T before the log-softmax: log-probs over T are no distribution",
    ),
    "padded_vocab": Cause(
        "padded rows of the vocabulary take part in the log-softmax",
        "cut the logits to the real vocabulary, or mask the padded ones with -inf, before the log-softmax",
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
    "wrong_pairing": Cause(
        "completions stand beside the prompts of other rows",
        "check how n samples a prompt are laid out (AABB or ABAB), and carry an id through every gather and sort",
    ),
    "duplicate_seed": Cause(
        "requests that should differ are sampled with one seed",
        "give every rank, request and step a seed of its own; deterministic modes fall back to one for all, and "
        "greedy decoding needs none",
    ),
    "retokenised": Cause(
        "ids were decoded to text and encoded again",
        "carry the sampled ids from the engine to the loss, and append to them from turn to turn",
    ),
    "eos_masked": Cause(
        "the id that ended a response is cut off or not trained",
        "take the mask from lengths, not from ids unequal to the pad id, which may be an EOS id",
    ),
    "tool_tokens_trained": Cause(
        "tokens that the policy did not sample are trained: tool output, templates, prompts, padding",
        "set the mask where tokens are sampled, and let the loss and its gradient respect it",
    ),
    "lag0_not_sync": Cause(
        "what is called lag 0 trains on samples of older weights",
        "publish the weights, and wait for it, before the next batch is sampled; after a resume too",
    ),
    "other_samples": Cause(
        "the off-policy loop at lag 0 samples other episodes than on-policy",
        "give evaluation and data loading generators of their own; compare the sampler's weights with the trainer's",
    ),
    "other_arithmetic": Cause(
        "the off-policy update computes in another dtype, order or way than the on-policy one",
        "share one update function; look at threads, the dtypes of rewards, advantages and weights, and at the ratio",
    ),
    "other_optimiser": Cause(
        "the off-policy loop makes another update of the same loss: its optimiser is not the on-policy one",
        "keep one optimiser; compare its kernel (fused, foreach), state, schedule, clipping",
    ),
    "nothing_trained": Cause(
        "no weight moves",
        "look for a learning rate of 0, frozen or detached parameters, rewards that are all equal",
    ),
    "weights_not_one": Cause(
        "a correction changes the update though pi_old equals mu",
        "its weight at ratio 1 must be exactly 1, in the dtype of the loss, and its mask that of the batch",
    ),
    "weight_queue": Cause(
        "the samples are not of the weights of so many optimiser steps ago",
        "copy tensors when they are queued, serve the oldest of lag + 1 versions, count optimiser steps, not batches",
    ),
    "shared_module": Cause(
        "sampler and trainer are one module, so that loading old weights rolls the trainer back",
        "give the sampler a module, and storage, of its own",
    ),
    "weights_harm": Cause(
        "the correction's weights do not make up for staleness",
        "compare them with min(pi_old/mu, cap) on a grid: direction, side of the cap, no floor, exp of the log-ratio",
    ),
    "partial_sync": Cause(
        "some tensors of the engine did not take the pushed weights",
        "look at names, chunks, shards and fused tensors of the push: every tensor must be sent and loaded once",
    ),
    "untied_head": Cause(
        "the LM head no longer follows the embedding it is tied to",
        "tie the engine's head after loading, or send it as a tensor of its own",
    ),
    "base_adapter": Cause(
        "the engine samples the base model without the trained adapter",
        "merge the adapter before the push, or send it and name it in every request",
    ),
    "kv_scale": Cause(
        "the KV cache loses its values: its scale is missing or out of date",
        "calibrate the scales of an fp8 KV cache again after each push; 1.0 clips values beyond 448",
    ),
    "numerics": Cause(
        "floating-point differences between two sets of kernels",
        "nothing is broken; a correction (truncated importance sampling) covers it, fp32 heads reduce it",
    ),
    "unknown": Cause(
        "no pattern that is known here fits what was measured",
        "compare one row by hand on both sides: prompt ids, response ids, positions, weights, then log-probs",
    ),
}
