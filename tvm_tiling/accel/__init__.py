"""The simulated accelerator: programs, their functional results and their timing. Programs run without TVM."""
