"""The shape database: one measured shape serves a larger one."""

import tvm_tiling as tt

known, larger = (tt.GemmWorkload(m=m, k=128, n=256, dtype="int8") for m in (128, 512))
with tt.ShapeDatabase("shapes.db") as db:  # or "postgresql+psycopg://user@host/name"
    report = db.generate(target="vsim/vta", shapes=[known], candidates=2, limit=4)
    print(f"{report.initial} measured, {report.boundary} boundary shapes, {report.measured} measurements")
    hit = db.match(larger, target="vsim/vta")
    print(hit.step, hit.entry.config, hit.estimate, hit.proportional)
    config = db.config_for(larger, tt.Hardware.load("vta"))  # what tt.compile(..., database=db) asks for
