"""Several processes that write concurrently, and processes that are killed while they write."""

from __future__ import annotations

from kills import check_writers, finish_generation, finish_tuning, kill_adders, kill_generation, kill_tuning


def test_four_writers_at_once_lose_nothing(tmp_path):
    """The database does not exist yet: they create it concurrently, too."""
    check_writers(f"sqlite:///{tmp_path}/x.db", 4, 40)


def test_a_killed_writer_leaves_the_database_whole(tmp_path):
    kill_adders(f"sqlite:///{tmp_path}/x.db", 10, seed=1)


def test_a_killed_generation_goes_on_and_comes_to_the_same_end(tmp_path):
    url = f"sqlite:///{tmp_path}/x.db"
    assert kill_generation(url, 5, seed=2) >= 3
    finish_generation(url)


def test_killed_sessions_of_tuning_lose_nothing_and_the_last_comes_to_the_end(tmp_path):
    url = f"sqlite:///{tmp_path}/x.db"
    assert kill_tuning(url, 6, seed=3) >= 3
    finish_tuning(url)
