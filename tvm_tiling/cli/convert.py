"""`tvm-tiling convert`: convert a Relay model to a Relax module."""

from __future__ import annotations

from pathlib import Path

import typer

from ..atomic_file import atomic_file
from ..errors import ModelFormatError, WorkloadError
from .model_options import SHAPE, ModelOptions, require_file
from .output import check_outputs, print_json, working
from .table import print_table

EXAMPLES = (
    "tvm-tiling convert model.relay --params model.params -o model.relax.json",
    "tvm-tiling convert model.tar -o model.relax.json --json",
)


def command(
    model: str = typer.Argument(metavar="MODEL", help="A Relay model: text, JSON, or a tar archive of either."),
    output: Path = typer.Option(  # noqa: B008
        Path("model.relax.json"),
        "--output",
        "-o",
        metavar="FILE",
        help="Where to write the Relax module; tvm.ir.load_json reads it.",
    ),
    params: str = typer.Option(
        "", "--params", metavar="FILE", help="Parameters, a .params file; default: those in the archive."
    ),
    batch: int = typer.Option(
        0, "--batch", metavar="N", min=0, show_default=False, help="Size of a dynamic batch dimension."
    ),
    shape: list[str] = SHAPE,
    as_json: bool = typer.Option(False, "--json", help="Print the mapping of operators as JSON."),
) -> None:
    """Convert a model saved by TVM 0.19 or older to a Relax module with its weights; show the mapping of operators."""
    import tvm

    from ..frontend.relay.archive import is_relay
    from ..frontend.relay.import_relay import ACCEPTED, read_relay
    from ..frontend.relay.params import mapped

    check_outputs([output], [model, params])
    require_file(model, "a Relay model")
    shapes = ModelOptions(shape=shape).sizes()["shapes"]
    if any(len(sizes) == 0 for sizes in shapes.values()):
        raise WorkloadError("--shape has no sizes; expected name=1,3,224,224")
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
    written = "an unknown release of TVM" if release is None else f"TVM {release}"
    total = sum(count for _, _, count in rows)
    print(f"{model}, saved by {written}: {total} Relay operators converted to Relax, written to {output}")
    for name, extents, dtype in zip(imported.input_names, imported.input_shapes, imported.input_dtypes, strict=True):
        print(f"input {name}: {dtype} {extents}")
    if found.unused:
        print(f"unused parameters: {', '.join(found.unused)}")
    if found.numbered:
        print(f"renamed parameters: {', '.join(f'{name} is {what}' for name, what in found.numbered)}")
    print_table(("Relay", "Relax", "calls"), rows)
