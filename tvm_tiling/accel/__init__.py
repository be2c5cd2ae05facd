"""The simulated accelerator (page 06): programs, their results and their time. Programs run without TVM."""
