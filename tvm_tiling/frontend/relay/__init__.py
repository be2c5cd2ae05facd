"""Models saved by TVM releases up to 0.19 in the graph language Relay, which later releases cannot read."""
