"""The board is read right while another process writes it."""

import os
import subprocess
import sys

import pytest

from odyssey.distributed.board import WAITING, Board

WRITER = """
import sys
from odyssey.distributed.board import WAITING, Board
board = Board(sys.argv[1], 2, 1)
print("writes", flush=True)
while True:
    for k in range(1000):
        board.post(7, k + 1, WAITING, k / 2, b"c" * (20 + k % 100))
"""


def test_a_line_comes_back_as_it_was_posted(tmp_path):
    board = Board(str(tmp_path), 2, 1)
    assert board.read(0) is None
    since = board.post(3, 5, WAITING, 0.25, b"all_reduce(float32 (3,))")
    line = Board(str(tmp_path), 2, 0).read(1)
    assert line == (3, 5, WAITING, since, 0.25, "all_reduce(float32 (3,))")
    assert Board(None, 2, 0).read(1) is None


@pytest.mark.slow
def test_no_line_is_read_half_written(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as writer:
        try:
            assert writer.stdout.readline() == b"writes\n"
            board, seen = Board(str(tmp_path), 2, 0), set()
            for _ in range(100_000):
                line = board.read(1)
                if line is None:
                    continue
                k = line.number - 1
                assert line.since > 0
                assert (line.group, line.state, line.waited) == (7, WAITING, k / 2)
                assert line.call == "c" * (20 + k % 100)
                seen.add(k)
            assert len(seen) > 10
        finally:
            writer.kill()
