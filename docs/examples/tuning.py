"""A search whose measurements are kept in a database: the next call resumes it."""

import tvm_tiling as tt

product = tt.GemmWorkload(m=96, k=128, n=160)
report = tt.tune(product, database="sqlite:///shapes.db", trials=4)  # 64 where it is left out
print(report)
with tt.ShapeDatabase("sqlite:///shapes.db") as database:  # what tt.compile(..., database=database) takes
    print(database.match(product, target="llvm").entry.cost, report.best)
