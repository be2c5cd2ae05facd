"""Configurations with their costs in a MetaSchedule database, compiled by TVM's own functions."""

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

import tvm_tiling as tt

a, b, r = te.placeholder((96, 128)), te.placeholder((128, 160)), te.reduce_axis((0, 128))
operator = te.create_prim_func([a, b, te.compute((96, 160), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))])

# The analytical configuration with its predicted seconds. A result of tt.tune also works: (report.best,
# report.cost_after).
product, machine = tt.GemmWorkload(m=96, k=128, n=160), tt.Hardware.detect()
decision = tt.decide(product, machine)
records = ms.database.MemoryDatabase()
tt.seed_database(records, operator, [(tt.config_of(decision, product, machine), decision.predicted_seconds)])

best = ms.tir_integration.compile_tir(records, operator, tt.llvm_target())
kernel = tvm.compile(best.mod, target=tt.llvm_target())["main"]
