"""Tilings for this CPU and for an accelerator with buffers, with reasons. Needs no TVM."""

import tvm_tiling as tt

workload = tt.GemmWorkload(m=64, k=16384, n=64, dtype="float32")
decision = tt.decide(workload, tt.Hardware.detect())
print(decision.explain())
print(decision.mr, decision.nr, decision.partition_k, decision.threads_k, decision.why("partition_k"))

npu = tt.Hardware.load("neartile")
print(tt.decide(tt.GemmWorkload(m=4096, k=1024, n=4096, dtype="float16"), npu).to_json())
