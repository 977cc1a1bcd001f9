import CTrials
import StackCapture

extension ThreadIdentity {
    init(_ thread: trial_thread) {
        self.init(threadID: thread.number, stack: UInt(thread.low)..<UInt(thread.high))
    }
}

extension StackCapturer {
    func capture(_ identity: ThreadIdentity) -> Result<CapturedStack, CaptureError> {
        capture(threadID: identity.threadID, stack: identity.stack)
    }
}
