"""Models saved by releases of TVM up to 0.19, in their graph language Relay, which no later release reads."""
