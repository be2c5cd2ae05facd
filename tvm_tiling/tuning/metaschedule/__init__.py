"""MetaSchedule plug-ins: spaces, mutators, postprocessors, cost model, seeds."""
