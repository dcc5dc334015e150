"""The prompts that an engine hands back against those that it was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlcheck.rollouts import Rollouts

Ids = Sequence[int]


@dataclass
class Echo:
    """Rows whose echoed prompt is not the one sent, by what became of it."""

    another: list[int] = field(default_factory=list)
    """The prompt of another row."""
    changed: list[int] = field(default_factory=list)
    """A prompt that nobody sent: a BOS more, a token less, another template."""
    trained: list[int] = field(default_factory=list)
    """A prompt whose last tokens stand in the response, trained."""


def compare_echo(rollouts: Rollouts, sent: Sequence[Ids]) -> Echo:
    """Compare row by row; ``sent`` holds one prompt per row."""
    echo = Echo()
    known = {tuple(prompt) for prompt in sent}
    masks = rollouts.split(rollouts.mask)
    for row, (asked, prompt) in enumerate(zip(sent, rollouts.prompts(), strict=True)):
        if list(asked) == prompt:
            continue
        tail = list(asked[len(prompt) :])
        moved = list(asked[: len(prompt)]) == prompt and rollouts.responses()[row][: len(tail)] == tail
        if moved:
            echo.trained += [row] if np.any(masks[row][: len(tail)]) else []
        elif tuple(prompt) in known:
            echo.another.append(row)
        else:
            echo.changed.append(row)
    return echo
