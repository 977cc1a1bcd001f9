import LoopTestSupport
import RunLoopKit
import Testing

/// What PyObjC's test_cfrunloop and WinObjC's NSTimer suite require of a timer's tolerance.
@Suite(.timeLimit(.minutes(10)))
struct PyObjCToleranceTests {
    @Test(
        "R46: a timer has no tolerance by default; a one-shot keeps any tolerance it is given",
        .stands(for: "PyObjC TestRunLoop.testFunctions10_9")
    )
    func kept() {
        let timer = EventTimer(after: .milliseconds(2900)) { _ in }
        #expect(timer.tolerance == .zero)
        timer.tolerance = .seconds(5)
        #expect(timer.tolerance == .seconds(5))
    }
}
