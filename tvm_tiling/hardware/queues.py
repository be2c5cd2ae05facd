"""Issue and synchronisation of an accelerator's instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import HardwareError
from . import checks

ENGINES = ("load_a", "load_b", "matrix", "wfold", "column", "vector", "store")
MOST_QUEUES = 8  # that an instruction can address


@dataclass(frozen=True, kw_only=True)
class Queues:
    """In-order queues: each holds up to `depth` waiting instructions (None: any number), the front end issues one every
    `issue_cycles`, and a token reaches another queue `token_cycles` after it was given.

    `of_engine` maps an engine to the queue of its instructions, for engines that share one; the others have a queue of
    their own name. Engines: load_a, load_b, matrix, wfold, column, vector, store.
    """

    depth: int | None = None
    issue_cycles: int = 0
    token_cycles: int = 0
    of_engine: dict[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.depth is not None:
            checks.whole("queues", "depth", self.depth)
        for name in ("issue_cycles", "token_cycles"):
            checks.whole("queues", name, getattr(self, name), least=0)
        for engine, queue in checks.table("queues", "of_engine", self.of_engine).items():
            checks.one_of("queues.of_engine", "engine", engine, ENGINES)
            if not checks.text("queues.of_engine", engine, queue).isidentifier():
                raise HardwareError(f"queues.of_engine: {engine} = {queue!r}; expected a word of letters and digits")
        checks.put(self, "of_engine", {engine: self.of_engine[engine] for engine in sorted(self.of_engine)})
