// A server says when a loop counts as stalled (`StallRule`) without knowing where that is decided.
@_exported public import StallDetection
