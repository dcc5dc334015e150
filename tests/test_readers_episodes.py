import numpy as np
import pytest
from pipeline_cases import columns, write

from rlcheck.errors import RlcheckError
from rlcheck.readers.episodes import read_episodes
from rlcheck.simulation.config import Failures, PipelineConfig
from rlcheck.simulation.pipeline import simulate


def log(**changes):
    columns = {
        "episode_id": np.array(["a", "b", "c"], object),
        "started_at": np.array([0.0, 1.0, 2.0]),
        "finished_at": np.array([5.0, 3.0, np.nan]),
        "status": np.array(["done", "infra", "in_flight"], object),
    }
    return columns | {name: np.asarray(value) for name, value in changes.items()}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_is_written_is_read(tmp_path, suffix):
    run = simulate(PipelineConfig(steps=3, eta=1, failures=Failures(1 / 300, "retry")))
    path = write(tmp_path / f"log{suffix}", columns(run.episodes))
    write(tmp_path / f"log.steps{suffix}", columns(run.steps))
    episodes, steps = read_episodes(path)
    for read, written in ((episodes, run.episodes), (steps, run.steps)):
        for name, column in columns(written).items():
            np.testing.assert_array_equal(getattr(read, name), column, err_msg=name)
            assert getattr(read, name).dtype == column.dtype, name


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_a_log_lacks_is_missing(tmp_path, suffix):
    episodes, steps = read_episodes(write(tmp_path / f"log{suffix}", log()))
    assert steps is None
    assert episodes.prompt_id.tolist() == ["a", "b", "c"]
    assert not episodes.recorded("version_started")
    assert not episodes.recorded("reward")


def test_files_of_a_pattern_are_joined(tmp_path):
    for rank in range(3):
        write(tmp_path / f"rank{rank}.jsonl", log(episode_id=[3 * rank, 3 * rank + 1, 3 * rank + 2]))
    episodes, _ = read_episodes(tmp_path / "rank*.jsonl")
    assert episodes.episode_id.tolist() == list(range(9))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("changes", "row", "column"),
    [
        ({"started_at": [0.0, -1.0, 2.0]}, 1, "started_at"),
        ({"finished_at": [5.0, 0.5, np.nan]}, 1, "finished_at"),
        ({"episode_id": ["a", "b", "a"]}, 2, "episode_id"),
        ({"status": ["done", "lost", "in_flight"]}, 1, "status"),
    ],
)
def test_bad_content_names_row_and_column(tmp_path, suffix, changes, row, column):
    path = write(tmp_path / f"log{suffix}", log(**changes))
    with pytest.raises(RlcheckError, match=rf"log{suffix}: {column}: .*first in row {row}\)"):
        read_episodes(path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_missing_column_is_named(tmp_path, suffix):
    table = log()
    del table["status"]
    with pytest.raises(RlcheckError, match="no column status; it has episode_id, started_at, finished_at"):
        read_episodes(write(tmp_path / f"log{suffix}", table))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "log.csv",
            "episode_id,started_at,finished_at,status\na,soon,1,done\n",
            "row 0: started_at: 'soon' is not a number",
        ),
        ("log.csv", "episode_id,started_at\na\n", "row 0 has 1 cells, the header 2"),
        ("log.csv", "", "no column episode_id"),
        ("log.jsonl", '{"episode_id": 1\n', "row 0: not JSON"),
        ("log.jsonl", "[1]\n", "row 0: not a JSON object"),
        ("log.parquet", "PAR0", "not a Parquet file"),
        ("log.pkl", "", r"cannot read \.pkl; give one of \.csv, \.jsonl, \.parquet"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(RlcheckError, match=message):
        read_episodes(tmp_path / name)


def test_a_missing_file():
    with pytest.raises(RlcheckError, match=r"nowhere\.csv: No such file"):
        read_episodes("nowhere.csv")


def test_times_in_parquet_are_numbers(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table(log() | {"started_at": ["1", "2", "3"]})
    parquet.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(RlcheckError, match="column started_at holds string, not numbers"):
        read_episodes(tmp_path / "log.parquet")
