"""What is shown of timed programs: text, pages, traces, sweeps."""
