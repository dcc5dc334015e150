"""The ids themselves: which prompt they answer, how they end, who sampled them, and whether seeds repeat."""

from rlcheck.tokens.duplicates import FILTERED, beyond_chance, duplicates, sample_group
from rlcheck.tokens.echo import Echo, compare_echo
from rlcheck.tokens.endings import Endings, ending_ids, find_endings, sample_endings
from rlcheck.tokens.gradients import ends_masked, relative_change
from rlcheck.tokens.pairing import Pairing, pairing
from rlcheck.tokens.sampled import after_the_end, one_policy, over_the_limit, unlike_sampled, unsampled_rows
from rlcheck.tokens.text import Turn, converse, episode_turns, retokenised_rows, starts_twice, turn_breaks

__all__ = [
    "FILTERED",
    "Echo",
    "Endings",
    "Pairing",
    "Turn",
    "after_the_end",
    "beyond_chance",
    "compare_echo",
    "converse",
    "duplicates",
    "ending_ids",
    "ends_masked",
    "episode_turns",
    "find_endings",
    "one_policy",
    "over_the_limit",
    "pairing",
    "relative_change",
    "retokenised_rows",
    "sample_endings",
    "sample_group",
    "starts_twice",
    "turn_breaks",
    "unlike_sampled",
    "unsampled_rows",
]
