"""The part of the topic contract that is about ids: prompts, endings, masks, seeds and text.

``check_contract`` collects these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rlcheck import tokens
from rlcheck.blocks import asked_prompts, params
from rlcheck.invariance import spread
from rlcheck.keys import NO_ENGINE, NO_TRAINER
from rlcheck.measure import Recorder
from rlcheck.pairs import Pair
from rlcheck.protocols import Engine, Trainer, batch_multiple
from rlcheck.rollouts import Rollouts
from rlcheck.settings import Settings

__all__ = [
    "check_chat_turns_extend_each_other",
    "check_completions_answer_their_prompts",
    "check_endings_are_kept_and_trained",
    "check_ids_are_not_retokenised",
    "check_only_sampled_tokens_are_trained",
    "check_prompts_come_back",
    "check_seeds_draw_differently",
    "check_untrained_tokens_get_no_gradient",
]

Observe = Callable[[Rollouts, object], None]

GRADIENT_ROWS = 2
SPELLING = "the tokenizer's own doing; record sampled_ids to have ids judged"
REPLAYED = "declared batch_reuse: a row may stand there several times"


def check_prompts_come_back(
    rlcheck_sampler: Engine | None,
    rlcheck_prompts: list[list[int]],
    rlcheck_rollouts: Rollouts,
    rlcheck_tokenizer: Any,
    rlcheck_observe: Observe,
    rlcheck_measure: Recorder,
) -> None:
    """The engine echoes, row by row, the prompt ids that it was sent, and none starts with BOS twice."""
    n = len(rlcheck_rollouts)
    if rlcheck_sampler is None and rlcheck_tokenizer is None:
        pytest.skip(f"{NO_ENGINE}; or give rlcheck_tokenizer, to see prompts that start with BOS twice")
    if rlcheck_sampler is not None:
        rlcheck_observe(rlcheck_rollouts, rlcheck_sampler, alone=True)
        echo = tokens.compare_echo(rlcheck_rollouts, asked_prompts(rlcheck_prompts, n))
        rlcheck_measure("contract.rows_with_another_prompt", len(echo.another), n=n)
        rlcheck_measure("contract.rows_with_a_changed_prompt", len(echo.changed), n=n)
        rlcheck_measure("contract.rows_training_their_prompt", len(echo.trained), n=n)
    if rlcheck_tokenizer is not None:
        twice = tokens.starts_twice(rlcheck_rollouts, rlcheck_tokenizer)
        rlcheck_measure("contract.rows_with_two_bos", len(twice), n=n)


def check_completions_answer_their_prompts(
    rlcheck_pairs: Callable[[int], Pair],
    rlcheck_trainer: Trainer | None,
    rlcheck_rollouts: Rollouts,
    rlcheck_observe: Observe,
    rlcheck_measure: Recorder,
) -> None:
    """No completion is explained better by the prompt of another row than by its own."""
    if rlcheck_trainer is None:
        pytest.skip(NO_TRAINER)
    rlcheck_observe(rlcheck_rollouts, rlcheck_trainer)
    found = tokens.pairing(rlcheck_pairs(0), rlcheck_trainer)
    if found is None:
        pytest.skip("all prompts are equal")
    if not found.decisive:
        pytest.skip("completions score alike after every prompt: none can be told to answer another")
    n = len(found.trials)
    rlcheck_measure("contract.rows_of_another_prompt", len(found.mistaken), n=n)
    rlcheck_measure("contract.prompt_margin", -max(trial.gain for trial in found.trials), n=n)


def check_endings_are_kept_and_trained(
    rlcheck_sampler: Engine | None,
    rlcheck_prompts: list[list[int]],
    rlcheck_rollouts: Rollouts,
    rlcheck_tokenizer: Any,
    rlcheck_settings: Settings,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_measure: Recorder,
) -> None:
    """A response that stopped keeps the id that stopped it; the loss trains that id, and nothing after it."""
    ids = tokens.ending_ids(rlcheck_rollouts, rlcheck_sampler, rlcheck_tokenizer)
    if not ids:
        pytest.skip("no ending id is known: give the engine eos_token_ids, or record params with eos_token_ids")
    batches: dict[str, Rollouts | None] = {"": rlcheck_rollouts}
    if rlcheck_sampler is not None:
        asked = params(rlcheck_sampler, rlcheck_settings.seed, 0)
        batches["ended"] = tokens.sample_endings(rlcheck_sampler, rlcheck_prompts, ids, asked)
    for variant, rollouts in batches.items():
        if rollouts is not None:
            _endings(rollouts, ids, variant, rlcheck_declarations, rlcheck_measure)
    if not rlcheck_measure.measurements:
        pytest.skip("no response ended at an EOS or stop id")


def check_only_sampled_tokens_are_trained(
    rlcheck_sampler: Engine | None,
    rlcheck_trainer: Trainer | None,
    rlcheck_rollouts: Rollouts,
    rlcheck_observe: Observe,
    rlcheck_measure: Recorder,
    request: pytest.FixtureRequest,
) -> None:
    """The mask holds nothing that the engine cannot have sampled: tool output, templates, prompts."""
    rlcheck_observe(rlcheck_rollouts, rlcheck_trainer)
    distribution = getattr(rlcheck_trainer, "distribution", None)
    _environment(rlcheck_rollouts, "", rlcheck_measure)
    if rlcheck_sampler is not None:
        beyond = tokens.over_the_limit(rlcheck_rollouts)
        rlcheck_measure("contract.rows_over_max_tokens", len(beyond), n=len(rlcheck_rollouts))
    if distribution is not None:
        pair = request.getfixturevalue("rlcheck_pairs")(0)
        unsampled = tokens.unsampled_rows(pair, distribution)
        reported = "" if tokens.one_policy(pair) else pair.reported
        rlcheck_measure("contract.rows_unsampled", len(unsampled), n=len(pair.rollouts), reported=reported)
    if not rlcheck_measure.measurements:
        pytest.skip(
            "nothing tells who made a token: give the trainer distribution(rollouts, positions), or turn_ids < 0"
        )


def check_untrained_tokens_get_no_gradient(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_settings: Settings, rlcheck_measure: Recorder
) -> None:
    """Tokens outside the mask do not move the gradient, whatever they are."""
    gradient = getattr(rlcheck_trainer, "gradient", None)
    if gradient is None:
        pytest.skip("the trainer has no gradient(rollouts, partition)")
    chosen = spread(len(rlcheck_trainer_rows), GRADIENT_ROWS, batch_multiple(rlcheck_trainer))
    generator = np.random.default_rng(rlcheck_settings.seed)
    masked, changed = tokens.ends_masked(rlcheck_trainer_rows.select(chosen), generator)
    whole = [list(range(len(chosen)))]
    change = tokens.relative_change(gradient(masked, whole), gradient(changed, whole))
    if np.isnan(change):
        pytest.skip("the gradient is 0 where all advantages are 1: nothing to compare")
    rlcheck_measure("contract.untrained_gradient", change, n=int((~masked.mask).sum()))


def check_seeds_draw_differently(
    rlcheck_sampler: Engine | None,
    rlcheck_sample_blocks: Callable[[int], Rollouts],
    rlcheck_settings: Settings,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_observe: Observe,
    rlcheck_measure: Recorder,
) -> None:
    """Completions of one prompt, in a group and under another seed, repeat no more often than chance has it."""
    rollouts = rlcheck_sample_blocks(0)
    if rlcheck_sampler is None:
        factor = 1.0 if rlcheck_declarations.get("unfiltered") else tokens.FILTERED
        reported = REPLAYED if rlcheck_declarations.get("batch_reuse", 1) != 1 else ""
        _repeats(rollouts, "recorded", rlcheck_measure, factor, reported)
        return
    rlcheck_observe(rollouts, rlcheck_sampler, alone=True)
    _repeats(Rollouts.concatenate([rollouts, rlcheck_sample_blocks(1)]), "blocks", rlcheck_measure)
    asked = params(rlcheck_sampler, rlcheck_settings.seed, 0)
    group, again = (tokens.sample_group(rlcheck_sampler, rollouts, asked) for _ in range(2))
    _repeats(group, "group", rlcheck_measure)
    unlike = sum(one != other for one, other in zip(group.responses(), again.responses(), strict=True))
    claimed = rlcheck_declarations.get("seeded") or rlcheck_declarations.get("bitwise")
    reported = "" if claimed else "not declared seeded: reported only"
    rlcheck_measure("contract.rows_unlike_same_seed", unlike, n=len(group), reported=reported)


def check_ids_are_not_retokenised(
    rlcheck_rollouts: Rollouts, rlcheck_tokenizer: Any, rlcheck_measure: Recorder
) -> None:
    """Ids are those sampled, and an episode's turns continue each other's; not their text encoded again."""
    unlike, n = tokens.unlike_sampled(rlcheck_rollouts), len(rlcheck_rollouts)
    if unlike is not None:
        rlcheck_measure("contract.rows_unlike_sampled_ids", len(unlike), n=n)
    if rlcheck_tokenizer is not None:
        changed = tokens.retokenised_rows(rlcheck_rollouts, rlcheck_tokenizer)
        rlcheck_measure("contract.round_trip_share", len(changed) / n, n=n, reported=SPELLING)
        if episodes := tokens.episode_turns(rlcheck_rollouts):
            _turns(episodes, rlcheck_rollouts, "episodes", rlcheck_tokenizer, rlcheck_measure)
    if not rlcheck_measure.measurements:
        pytest.skip("give rlcheck_tokenizer, or record sampled_ids: each row's ids as the engine returned them")


def check_chat_turns_extend_each_other(rlcheck_chat: Any, rlcheck_tokenizer: Any, rlcheck_measure: Recorder) -> None:
    """Each turn of a chat starts with the ids of those before it, and trains only what was sampled."""
    if rlcheck_chat is None:
        pytest.skip("no chat: override rlcheck_chat, (messages) -> Rollouts")
    answers = tokens.converse(rlcheck_chat, rlcheck_tokenizer)
    if answers is None:
        pytest.skip("a reply has no text: give rlcheck_tokenizer, or the extra column text")
    chat = Rollouts.concatenate([answer.select([0]) for answer in answers])
    _turns([list(zip(chat.prompts(), chat.responses(), strict=True))], chat, "chat", rlcheck_tokenizer, rlcheck_measure)
    _environment(chat, "chat", rlcheck_measure)
    if rlcheck_tokenizer is not None:
        twice = tokens.starts_twice(chat, rlcheck_tokenizer)
        rlcheck_measure("contract.rows_with_two_bos", len(twice), variant="chat", n=len(chat))


def _endings(rollouts: Rollouts, ids: list[int], variant: str, declared: Mapping[str, Any], measure: Recorder) -> None:
    found = tokens.find_endings(rollouts, ids)
    if not found.n:
        return
    unknown = "" if rollouts.params.ending_ids else "params state no eos_token_ids: reported only"
    reported = "declared stop_strings: reported only" if declared.get("stop_strings") else unknown
    measure("contract.rows_without_ending", len(found.lost), variant=variant, n=found.n, reported=reported)
    measure("contract.rows_with_ending_masked", len(found.masked), variant=variant, n=found.n)
    after = tokens.after_the_end(rollouts, ids)
    measure("contract.tokens_after_ending", int(after.sum()), variant=variant, n=found.n)


def _environment(rollouts: Rollouts, variant: str, measure: Recorder) -> None:
    if rollouts.turn_ids is not None and (rollouts.turn_ids < 0).any():
        others = rollouts.turn_ids < 0
        measure(
            "contract.environment_tokens", int((others & rollouts.mask).sum()), variant=variant, n=int(others.sum())
        )


def _repeats(
    rollouts: Rollouts, variant: str, measure: Recorder, chance_factor: float = 1.0, reported: str = ""
) -> None:
    count, expected = tokens.duplicates(rollouts, chance_factor)
    beyond = tokens.beyond_chance(count, expected, measure.level)
    measure("contract.duplicates_beyond_chance", beyond, variant=variant, n=len(rollouts), reported=reported)
    measure("contract.duplicates", count, variant=variant, n=len(rollouts))
    measure("contract.duplicates_expected", expected, variant=variant, n=len(rollouts))


def _turns(
    episodes: Sequence[Sequence[tokens.Turn]], rollouts: Rollouts, variant: str, tokenizer: Any, measure: Recorder
) -> None:
    breaks = [tokens.turn_breaks(turns, rollouts.params.ending_ids, tokenizer) for turns in episodes]
    n = sum(map(len, episodes))
    measure("contract.turns_retokenised", sum(retokenised for retokenised, _ in breaks), variant=variant, n=n)
    measure("contract.turns_rewritten", sum(rewritten for _, rewritten in breaks), variant=variant, n=n)
