"""Progress is shown where somebody watches, and nowhere else."""

import pytest

from rlcheck import progress


@pytest.fixture
def shown(monkeypatch):
    lines = []
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    progress.show_with(lines.append)
    yield lines
    progress.show_with(None)


def test_long_work_says_how_far_it_is_and_clears_the_line(shown):
    assert list(progress.track(range(3), "row")) == [0, 1, 2]
    assert shown == ["rlcheck: row 1/3", "rlcheck: row 2/3", "rlcheck: row 3/3", ""]


def test_nobody_watching_nothing_shown(monkeypatch, capfd):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert list(progress.track(iter("ab"), "row")) == ["a", "b"]
    assert capfd.readouterr() == ("", "")
