"""Changes of single fields by their dotted path."""

from __future__ import annotations

import pytest

from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.fields import with_field


def value_at(machine, path):
    found = machine.to_dict()
    for word in path.split("."):
        if isinstance(found, (list, tuple)):
            found = next(item for item in found if item.get("name", f"l{item.get('level')}") == word)
        else:
            found = found[word]
    return found


@pytest.mark.parametrize(
    ("preset", "path", "value"),
    [
        ("neartile", "near_tile.buf_a", 4096),
        ("neartile", "near_tile.bandwidth.external", 16.0),
        ("neartile", "near_tile.bw_a", 8.0),
        ("neartile", "name", "other"),
        ("neartile", "clock_mhz", 500.0),
        ("neartile", "queues.depth", 4),
        ("neartile", "queues.of_engine.load_b", "load_a"),
        ("neartile", "memories.external.latency", 200),
        ("neartile", "energy.byte_pj.external", 20.0),
        ("vta", "memories.external.ports", 2),
        ("vta", "vector.lanes", 32),
        ("dla3", "levels.unit.bytes_a", 65536),
        ("wfold16", "w_fold.staging_bytes", 128),
        ("rnn16k", "column.threads", 2),
        ("icelake-server-2c", "cpu.caches.l2.ways", 10),
    ],
)
def test_a_field_is_changed_and_nothing_else(preset, path, value):
    machine = Hardware.load(preset)
    changed = with_field(machine, path, value)
    assert value_at(changed, path) == value
    assert type(changed) is Hardware and changed != machine
    if path in ("near_tile.buf_a", "column.threads", "levels.unit.bytes_a"):
        assert with_field(changed, path, value_at(machine, path)) == machine
        assert changed.fingerprint() != machine.fingerprint()


@pytest.mark.parametrize(
    ("preset", "path", "value", "part"),
    [
        ("neartile", "near_tyle.buf_a", 1, "near_tyle.buf_a: unknown field 'near_tyle'; did you mean 'near_tile'?"),
        ("neartile", "near_tile.buff_a", 1, "unknown field 'buff_a' of near_tile; did you mean 'buf_a'? expected acc"),
        ("neartile", "near_tile.buf_a", 0, "near_tile: buf_a = 0; expected a whole number of at least 1"),
        ("neartile", "near_tile.buf_a.b", 0, "near_tile.buf_a has no fields; expected near_tile.buf_a"),
        ("neartile", "near_tile", 0, "near_tile: near_tile is a table; expected one of its fields"),
        ("neartile", "near_tile.bandwidth.extrnal", 1, "'extrnal'; did you mean 'external'?"),
        ("neartile", "near_tile.bandwidth.external.x", 1, "near_tile.bandwidth.external has no fields"),
        (
            "neartile",
            "column.threads",
            2,
            "column.threads: the machine has no column; expected fields of units that it has",
        ),
        ("neartile", "memories.external", 2, "memories.external is a table"),
        ("neartile", "memories.extrnal.ports", 2, "'extrnal'; did you mean 'external'?"),
        ("neartile", "memories.external.port", 2, "unknown field 'port' of memories.external; did you mean 'ports'?"),
        (
            "dla3",
            "levels.units.bytes_a",
            2,
            "levels has no 'units'; did you mean 'unit'? expected array, cluster, unit",
        ),
        ("dla3", "levels.unit", 2, "levels.unit is a table"),
        ("icelake-server-2c", "cpu.caches.l2.ways", 7, "cache: size = 1310720 of level 2; expected a multiple"),
        ("neartile", "", 1, "unknown field ''"),
    ],
)
def test_what_is_not_a_field_or_no_value_is_refused(preset, path, value, part):
    with pytest.raises(HardwareError) as caught:
        with_field(Hardware.load(preset), path, value)
    assert part in str(caught.value) and "\n" not in str(caught.value)
