"""`tvm-tiling convert`: a Relay model to a Relax one, for those who only want to leave Relay behind."""

from __future__ import annotations

from pathlib import Path

import typer

from ..atomic_file import atomic_file, refuse_unwritable
from ..errors import ModelFormatError, WorkloadError
from .model_options import SHAPE, ModelOptions
from .output import print_json, working
from .table import print_table

EXAMPLES = (
    "tvm-tiling convert model.relay --params model.params -o model.relax.json",
    "tvm-tiling convert model.tar -o model.relax.json --json",
)


def command(
    model: str = typer.Argument(metavar="MODEL", help="A Relay model: text, JSON, or a tar of it; by its content."),
    output: Path = typer.Option(  # noqa: B008
        Path("model.relax.json"), "--output", "-o", help="Where the Relax module goes; tvm.ir.load_json reads it."
    ),
    params: str = typer.Option("", "--params", help="Its parameters, a .params file; left out: those of the archive."),
    batch: int = typer.Option(0, "--batch", min=0, help="Size of the first dimension where the model leaves it open."),
    shape: list[str] = SHAPE,
    as_json: bool = typer.Option(False, "--json", help="Print what was mapped to what as JSON."),
) -> None:
    """Turn a model that TVM up to 0.19 saved into a Relax module with its weights, and say what became of it."""
    import tvm

    from ..frontend.relay.archive import is_relay
    from ..frontend.relay.import_relay import ACCEPTED, read_relay
    from ..frontend.relay.params import mapped

    refuse_unwritable(output)
    shapes = ModelOptions("", (), shape).sizes()["shapes"]
    if any(len(sizes) == 0 for sizes in shapes.values()):
        raise WorkloadError("--shape without sizes, accepted: name=1,3,224,224")
    content = mapped(Path(model))
    if not is_relay(content):
        raise ModelFormatError(f"{model} is not a Relay model; {ACCEPTED}")
    with working(f"converting {model}"):
        found = read_relay(content, shapes=shapes, batch=batch or None, params=params or None, where=model)
    with atomic_file(output) as file:
        file.write(tvm.ir.save_json(found.imported.module).encode())
    release = None if found.release is None else ".".join(map(str, found.release))
    rows = [(name, became, count) for name, each in sorted(found.mapped.items()) for became, count in each.items()]
    imported = found.imported
    if as_json:
        print_json(
            {
                "output": str(output),
                "release": release,
                "inputs": [
                    {"name": name, "shape": list(extents), "dtype": dtype}
                    for name, extents, dtype in zip(
                        imported.input_names, imported.input_shapes, imported.input_dtypes, strict=True
                    )
                ],
                "outputs": list(imported.output_names),
                "unused_params": list(found.unused),
                "numbered_params": dict(found.numbered),
                "mapped": [{"relay": name, "relax": became, "calls": count} for name, became, count in rows],
            }
        )
        return
    written = "a release that the file does not name" if release is None else f"TVM {release}"
    total = sum(count for _, _, count in rows)
    print(f"{model}: {total} operators of Relay, written by {written}, are Relax in {output}")
    for name, extents, dtype in zip(imported.input_names, imported.input_shapes, imported.input_dtypes, strict=True):
        print(f"input {name}: {dtype} {extents}")
    if found.unused:
        print(f"parameters that the model does not have: {', '.join(found.unused)}")
    if found.numbered:
        print(f"parameters of the compiled model: {', '.join(f'{name} is {what}' for name, what in found.numbered)}")
    print_table(("Relay", "became", "calls"), rows)
