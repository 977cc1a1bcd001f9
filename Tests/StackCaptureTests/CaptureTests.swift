import Testing

/// One capturer per signal and process: these tests come one after another.
@Suite("Captures", .serialized, .timeLimit(.minutes(3)))
enum CaptureTests {}
