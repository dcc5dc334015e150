import pytest

from rlcheck import tables
from rlcheck.errors import RlcheckError
from rlcheck.tables.__main__ import main


def test_tables_are_found_by_name(capsys):
    assert "pipeline" in tables.names()
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "pipeline" in capsys.readouterr().out
    with pytest.raises(RlcheckError, match="no table 'pipelin'; did you mean pipeline"):
        tables.run("pipelin", [])
    assert main(["nonsense"]) == 2
    assert "no table 'nonsense'" in capsys.readouterr().err


def test_markdown():
    assert tables.markdown(["a", "long"], [["wider", "b"]]) == "| a     | long |\n| ----- | ---- |\n| wider | b    |"


def test_the_numerics_table(capsys):
    tables.run("numerics", ["--rows", "2", "--dtypes", "float32"])
    first, second = capsys.readouterr().out.split("Mean absolute difference")
    lines = [line for line in first.splitlines() if line.startswith("| float32")]
    assert len(lines) == 9
    for line in lines:
        mean_abs = float(line.split("|")[2])
        assert mean_abs < (1e-12 if "cache" in line else 1e-4), line
    assert second.count("| float32") == 9


def test_the_pipeline_table(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    tables.run("pipeline", ["--seeds", "1", "--figures", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "| agent episodes                  | 2.61 | 4.33 | 5.41  |" in printed
    assert "1: not reproduced" in printed
    assert "checkpoint reload" in printed
    drawn = {path.stem for path in tmp_path.glob("*.svg")}
    assert drawn == {"timeline", "eta", "stragglers", "failures"}
