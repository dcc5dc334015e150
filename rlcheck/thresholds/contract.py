"""Quantities of the topic contract."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, limits, never

RESCORING_TOLERANCE = limits(float32=1e-5, tf32=1e-3, float16=1e-3, bfloat16=5e-3)
"""Nats: largest mean |difference| of a row scored twice that is still rounding (non-deterministic kernels)."""

ROWS = (
    Quantity(
        "contract.errors",
        "",
        "stored contents that cannot be right",
        "==",
        0,
        kind="exact",
        source="never in a healthy stack",
        causes=("bad_record",),
    ),
    Quantity(
        "contract.placeholder_zeros",
        "tokens",
        "trained tokens whose engine log-prob is exactly 0 where the trainer is below -1e-3",
        "==",
        0,
        kind="exact",
        source="a probability of exactly 1 that the trainer denies never occurs in a healthy stack",
        causes=("placeholder_logprob", "eos_logprob"),
    ),
    Quantity(
        "contract.surprisal_effect",
        "sd",
        "mean surprisal of the sampled tokens minus mean entropy of what they were drawn from, in its own "
        "standard deviation per token",
        "in",
        limits(float32=0.002, quantised=0.01, moe=0.01),
        0.0,
        limits(float32=0.1),
        source="E[-log mu(y)] = H(mu) for honest samples (identity)",
        causes=("unfaithful_logprob", "hidden_sampling_defaults"),
    ),
    Quantity(
        "contract.rows_rescored_differently",
        "rows",
        "rows whose mean |difference| between two scorings of one batch is beyond numerics",
        "==",
        0,
        kind="exact",
        source="forward passes of one batch are bit-equal on CPU and within rounding on GPU",
        causes=("dropout_on",),
    ),
    Quantity("contract.surprisal_gap", "nats", "mean surprisal minus mean entropy"),
    Quantity("contract.surprisal_z", "", "surprisal gap in standard errors"),
    Quantity(
        "contract.missing_beyond_declared",
        "",
        "share of trained tokens without an engine log-prob, beyond the share declared",
        "==",
        0,
        kind="exact",
        source="your declaration missing_logprobs",
        causes=("bad_record",),
    ),
    Quantity("contract.missing_share", "", "share of trained tokens without an engine log-prob"),
    Quantity("contract.rescoring_max_abs", "nats", "largest difference between two scorings of one batch"),
    never("contract.rows_with_another_prompt", "rows", "rows that echo a prompt sent for another row", "wrong_pairing"),
    never("contract.rows_with_a_changed_prompt", "rows", "rows that echo a prompt that was not sent", "double_bos"),
    never(
        "contract.rows_training_their_prompt",
        "rows",
        "rows in whose response the last tokens of the prompt are trained",
        "tool_tokens_trained",
    ),
    never("contract.rows_with_two_bos", "rows", "rows whose prompt starts with BOS twice", "double_bos"),
    never(
        "contract.rows_of_another_prompt",
        "rows",
        "rows (the most suspicious looked at) whose completion answers another row's prompt",
        "wrong_pairing",
        source="far likelier there (a likelihood ratio that chance gives one run in a million), or with its log-probs",
    ),
    Quantity("contract.prompt_margin", "nats", "least log-likelihood by which a row's own prompt beats all others"),
    never(
        "contract.rows_without_ending", "rows", "rows that stopped but do not end with an EOS or stop id", "eos_masked"
    ),
    never("contract.rows_with_ending_masked", "rows", "rows whose EOS or stop id is not trained", "eos_masked"),
    never(
        "contract.tokens_after_ending", "tokens", "trained tokens right after an EOS or stop id", "tool_tokens_trained"
    ),
    never("contract.environment_tokens", "tokens", "trained tokens whose turn id is negative", "tool_tokens_trained"),
    never(
        "contract.rows_over_max_tokens",
        "rows",
        "rows that train more tokens than were asked for",
        "tool_tokens_trained",
    ),
    never(
        "contract.rows_unsampled",
        "rows",
        "rows (the most surprising looked at) with a stretch of trained tokens that no sampling explains",
        "tool_tokens_trained",
        source="a product of p(y)^-1/2 / sum p^1/2 beyond n / 1e-6 occurs with probability 1e-6 (Ville)",
    ),
    Quantity(
        "contract.untrained_gradient",
        "",
        "change of the gradient when untrained tokens become others, relative to its norm",
        "<=",
        limits(float32=1e-3, tf32=0.02, float16=0.02, bfloat16=0.05, moe=0.5),
        kind="exact",
        source="nothing outside the mask and after it enters the loss (but one that balances experts)",
        causes=("tool_tokens_trained",),
    ),
    never(
        "contract.duplicates_beyond_chance",
        "rows",
        "rows that repeat a completion of their prompt, beyond what its probability explains",
        "duplicate_seed",
        source="Freedman's bound on the count at the level of one gate",
    ),
    Quantity("contract.duplicates", "rows", "rows that repeat an earlier completion of their prompt"),
    Quantity("contract.duplicates_expected", "rows", "rows expected to, from the probabilities of completions"),
    never(
        "contract.rows_unlike_same_seed",
        "rows",
        "rows that differ when sampled again with the same seed",
        "duplicate_seed",
        source="your declaration seeded or bitwise",
    ),
    never(
        "contract.rows_unlike_sampled_ids", "rows", "rows whose trained ids are not those in sampled_ids", "retokenised"
    ),
    Quantity("contract.round_trip_share", "", "share of rows whose ids change when decoded and encoded again"),
    never(
        "contract.turns_retokenised",
        "turns",
        "turns whose ids the next turn's prompt holds in another spelling",
        "retokenised",
    ),
    Quantity("contract.turns_rewritten", "turns", "turns whose text the next turn's prompt does not hold"),
)
