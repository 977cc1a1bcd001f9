import TestSupport
import Testing

/// One capturer per signal and process: these tests run one after another.
@Suite("Captures", .serialized, .captureSignal, .timeLimit(.minutes(60)))
enum CaptureTests {}
