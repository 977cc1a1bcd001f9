import Glibc
import StackCapture
import Synchronization
import Testing

@testable import StallMonitor

@Suite("The source of stacks", .serialized, .timeLimit(.minutes(1)))
struct StackSourceTests {
    private final class Attempts: Sendable {
        let failure = Mutex<CaptureError?>(nil)
        let count = Atomic(0)
        private let told = Mutex<[String]>([])

        var texts: [String] { told.withLock { $0 } }

        init(failing error: CaptureError) { failure.withLock { $0 = error } }

        func makeSource(retryInterval: Duration = .zero) -> StackSource {
            StackSource(signal: SIGWINCH, retryInterval: retryInterval) { signal throws(CaptureError) in
                self.count.add(1, ordering: .relaxed)
                if let error = self.failure.withLock({ $0 }) { throw error }
                return try StackCapturer(signal: signal)
            } tell: { notice in
                self.told.withLock {
                    switch notice {
                    case .fault(let error): $0.append("fault \(error.code.name)")
                    case .mended(let error): $0.append("mended \(error.code.name)")
                    default: $0.append("\(notice)")
                    }
                }
            }
        }
    }

    @Test(
        "of a monitor that starts without descriptors or memory takes stacks once there are some",
        arguments: [EMFILE, ENFILE, ENOMEM]
    )
    func laterDescriptors(errno: Int32) {
        let attempts = Attempts(failing: CaptureError(.memoryUnreadable, underlying: errno))
        let source = attempts.makeSource()
        #expect(source.capturer == nil && source.capturer == nil)
        #expect(attempts.count.load(ordering: .relaxed) == 3)
        #expect(attempts.texts == ["fault capture_unavailable"])

        attempts.failure.withLock { $0 = nil }
        #expect(source.capturer != nil && source.capturer != nil)
        #expect(attempts.count.load(ordering: .relaxed) == 4)
        #expect(attempts.texts == ["fault capture_unavailable", "mended capture_unavailable"])
        source.invalidate()
    }

    @Test("tries no more often than its interval")
    func interval() {
        let attempts = Attempts(failing: CaptureError(.memoryUnreadable, underlying: EMFILE))
        let source = attempts.makeSource(retryInterval: .seconds(3600))
        for _ in 0..<10 { #expect(source.capturer == nil) }
        #expect(attempts.count.load(ordering: .relaxed) == 1)
    }

    @Test("does not try again if a signal or a sandbox refuses it", arguments: [nil, EPERM])
    func refused(errno: Int32?) {
        let attempts = Attempts(failing: CaptureError(.signalInUse, underlying: errno))
        let source = attempts.makeSource()
        #expect(source.capturer == nil && source.capturer == nil)
        #expect(attempts.count.load(ordering: .relaxed) == 1)
        guard case .unavailable(let reason) = source.stackless else {
            return #expect(Bool(false), "\(source.stackless)")
        }
        #expect(reason.contains("another monitor"))
    }
}
