"""Whole networks in other libraries: processes in turns, comparison of outputs, and rows of failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest

from benchmarks import peer_networks, zoo
from benchmarks.network_files import INPUTS, MODEL, OUTPUTS, Network, save
from benchmarks.peers.network import NetworkPeer, Run, missing
from benchmarks.peers.network_onnxruntime import OnnxRuntimeNetwork
from benchmarks.peers.network_ours import OurNetwork
from benchmarks.peers.onnxruntime_peer import session_options
from benchmarks.turns import LOAD, Player, distance, take_turns
from tvm_tiling.runtime import threads

NAME = "squeezenet"  # of the onnx package: read from its file, not built


@pytest.fixture
def network(tmp_path: Path) -> Network:
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 8), "float32"), rng.standard_normal((8, 3), "float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 3])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = tmp_path / f"{NAME}-1"
    folder.mkdir()
    (folder / MODEL).write_bytes(model.SerializeToString())
    save(folder / INPUTS, [x])
    save(folder / OUTPUTS, [x @ w])
    return Network(NAME, 1, folder)


class Broken(NetworkPeer):
    """A library that gives wrong results, or ends its process."""

    name: ClassVar[str] = "broken"
    needs: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        return lambda: [np.zeros((4, 3), "float32")]


class Ending(Broken):
    name: ClassVar[str] = "ending"

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        os._exit(3)


def test_libraries_take_turns_and_ours_is_compared_with_each(network):
    entry = peer_networks.measure(network, [OnnxRuntimeNetwork, Broken, Ending], 2, 0.02)
    libraries = entry["libraries"]
    assert set(libraries) == {"ours", "onnxruntime", "broken", "ending"}
    assert libraries["ours"]["part"] == 1.0 and libraries["ours"]["far"] < 1e-5
    assert len(libraries["onnxruntime"]["parts"]) == 2 and libraries["onnxruntime"]["part"] > 0
    assert libraries["broken"]["reason"].startswith("wrong result: error 1.0e+00")
    assert libraries["ending"]["reason"] == "its process ended with 3"
    best = peer_networks.fastest(entry)
    assert best is not None and best[0] == "onnxruntime"


def test_every_library_gets_the_number_of_threads_of_the_variable(network, monkeypatch):
    monkeypatch.setattr(threads, "_ASKED_FOR", "3")
    for cores, wanted in ((8, 3), (2, 2)):
        given = []
        monkeypatch.setattr(threads, "usable_core_count", lambda cores=cores: cores)
        monkeypatch.setattr(peer_networks, "Player", lambda peer, _, count, given=given: given.append(count))
        with pytest.raises(AttributeError):  # None in place of a player
            peer_networks.measure(network, [OnnxRuntimeNetwork], rounds=1, seconds=0.0)
        assert given == [wanted, wanted]
        assert session_options().intra_op_num_threads == wanted


@pytest.mark.parametrize(("variables", "wanted"), [({"TVM_NUM_THREADS": "1"}, "1 1"), ({}, "None None")])
def test_libraries_without_an_interface_for_threads_get_variables(variables, wanted):
    names = ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    code = (
        "import benchmarks, os, sys; assert 'numpy' not in sys.modules;"
        "print(*map(os.environ.get, ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS')))"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == wanted


def test_a_process_that_does_not_answer_is_left(network):
    player = Player(OurNetwork, network, 1)
    try:
        assert player.ask(LOAD, 0.01) is None
        assert player.failure == "no answer to load in 0 s"
        take_turns([player], 1, 0.01)
        assert player.seconds == []
    finally:
        player.close()


def test_results_are_written_after_each_network_and_go_on(network, tmp_path, capsys):
    path = tmp_path / "peers.json"
    arguments = [
        NAME,
        "--folder",
        str(network.folder.parent),
        "--json",
        str(path),
        "--rounds",
        "2",
        "--seconds",
        "0.02",
    ]
    assert peer_networks.main([*arguments, "--peer", "onnxruntime"]) == 0
    assert "onnxruntime: geometric mean" in capsys.readouterr().out
    before = path.read_text()
    (entry,) = json.loads(before)["networks"]
    assert (entry["network"], entry["batch"]) == (NAME, 1)
    assert peer_networks.main([*arguments, "--peer", "onnxruntime"]) == 0  # it exists
    assert path.read_text() == before


def test_forty_networks_and_their_batches():
    assert len(zoo.EVERY) == len(set(zoo.EVERY)) == 40 and set(zoo.BATCHED) <= set(zoo.EVERY)
    assert [name for name in peer_networks.PEERS if not peer_networks.PEERS[name].exact] == ["openvino-default"]


def test_unknown_networks_and_missing_libraries_are_named(capsys, monkeypatch):
    with pytest.raises(SystemExit):
        peer_networks.main(["resnet51"])
    assert "unknown networks: resnet51" in capsys.readouterr().err
    monkeypatch.setattr(Broken, "needs", ("no_such_module", "json"))
    assert missing(Broken) == ["no_such_module"]


def test_outputs_may_differ_by_axes_of_one_alone():
    right = [np.arange(6.0).reshape(1, 2, 3)]
    assert distance([np.arange(6.0).reshape(2, 3)], right) == 0
    assert distance([np.arange(6.0) + 0.5], right) == pytest.approx(0.1)
    assert distance([np.arange(5.0)], right) == np.inf and distance([], right) == np.inf
    assert distance([np.full(6, np.nan)], right) != 0


def test_a_model_of_onnx_is_not_taken_for_the_network_of_that_name_in_torchvision(tmp_path):
    with pytest.raises(ValueError, match=r"^resnet50 is an ONNX model of the onnx package; expected a network of"):
        Network("resnet50", 1, tmp_path).build()


def test_any_network_of_timm_is_known_by_its_name():
    assert zoo.is_known("timm:convit_tiny") and zoo.is_known("resnet18")
    assert not any(zoo.is_known(name) for name in ("convit_tiny", "timm:", ""))
