"""Affinity lists and control-group limits."""

from __future__ import annotations

import machines
import pytest

from tvm_tiling.hardware.caches import parse_size
from tvm_tiling.hardware.usable import cpu_limit, group_by_core, parse_cpu_list, whole_cpus


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0-3", {0, 1, 2, 3}), ("0,32", {0, 32}), ("0-1,8-9", {0, 1, 8, 9}), ("", set()), ("x-3", set())],
)
def test_cpu_list(text, numbers):
    assert parse_cpu_list(text) == numbers


@pytest.mark.parametrize(
    ("text", "size"), [("48K", 49152), ("2M", 2 << 20), ("512", 512), ("", 0), ("K", 0), ("4 K", 0)]
)
def test_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(("limit", "cpus"), [(0.05, 1), (1.0, 1), (1.5, 2), (2.0, 2)])
def test_fractions_round_up(limit, cpus):
    assert whole_cpus(limit) == cpus


def test_no_control_groups_is_not_a_limit(tmp_path):
    assert cpu_limit(tmp_path) is None


def test_the_tightest_ancestor_holds(tmp_path):
    limits = {"/kube/pod": "150000 100000", "/kube/pod/box": "400000 100000", "/": "max 100000"}
    machines.add_cgroup_v2(tmp_path, "/kube/pod/box", limits)
    assert cpu_limit(tmp_path) == 1.5


def test_a_sibling_group_does_not_count(tmp_path):
    machines.add_cgroup_v2(tmp_path, "/kube/mine", {"/kube/other": "100000 100000"})
    assert cpu_limit(tmp_path) is None


def test_group_path_that_the_container_cannot_see(tmp_path):
    machines.add_cgroup_v2(tmp_path, "/", {"/": "300000 100000"})
    machines.write(tmp_path / "proc/self/cgroup", "0::/../../somewhere/else")
    assert cpu_limit(tmp_path) == 3


def test_version_1_shown_from_its_own_group(tmp_path):
    machines.add_cgroup_v1(tmp_path, quota=50000, mounted="/docker/abc")
    assert cpu_limit(tmp_path) == 0.5


def test_version_1_shown_from_the_top_but_path_missing(tmp_path):
    machines.add_cgroup_v1(tmp_path, quota=50000, mounted="/")
    assert cpu_limit(tmp_path) == 0.5


def test_version_1_without_quota(tmp_path):
    machines.add_cgroup_v1(tmp_path, quota=-1)
    assert cpu_limit(tmp_path) is None


def test_usual_places_where_the_mounts_are_hidden(tmp_path):
    machines.add_cgroup_v1(tmp_path, quota=120000)
    (tmp_path / "proc/self/mountinfo").unlink()
    assert cpu_limit(tmp_path) == 1.2


def test_cores_from_sibling_lists(tmp_path):
    machines.add_topology(tmp_path, cores=2, threads_per_core=2)
    tree = tmp_path / "sys/devices/system/cpu"
    assert group_by_core(tree, {0, 1, 2, 3}) == [{0, 2}, {1, 3}]
    assert group_by_core(tree, {3}) == [{1, 3}]
    assert group_by_core(tree, {0, 7}) is None, "processor 7 is not in the tree"
