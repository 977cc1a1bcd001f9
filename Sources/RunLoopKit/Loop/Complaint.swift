internal import CRunLoopShims
internal import Synchronization

/// A mistake or a shortage that the loop survives. Told on stderr once a process, not each time.
struct Complaint: Sendable {
    private let bit: UInt32
    private let text: StaticString
    private static let told = Atomic<UInt32>(0)

    static let commonIsNoMode = Complaint(bit: 1, text: "a run in the common modes was refused; name the mode to run")
    static let loopEnded = Complaint(bit: 2, text: "a call was ignored: the loop's thread has ended")
    static let itemInvalid = Complaint(bit: 4, text: "an invalid source, timer or observer was not added")
    static let itemOnOtherLoop = Complaint(bit: 8, text: "a timer or observer was not added: it is on another loop")
    static let outOfResources = Complaint(bit: 16, text: "no descriptors left: a loop polls until there are some again")
    static let cannotWatchClock = Complaint(
        bit: 32,
        text: "no descriptors left: a loop looks each second whether the clock was set"
    )
    static let taskAfterEnd = Complaint(
        bit: 64,
        text: "a task or an actor is on a loop whose thread has ended; it runs on a dispatch queue"
    )
    static let descriptorsClosed = Complaint(bit: 128, text: "a loop's descriptors were closed: it makes new ones")
    static let mainQueueUnwatched = Complaint(bit: 256, text: "the main queue cannot be watched: it is served late")
    static let mainQueueForked = Complaint(bit: 512, text: "the main queue is not served in a forked child")
    static let loopOfParent = Complaint(bit: 1024, text: "a call was ignored: the loop's thread is the parent's")

    static func of(_ error: RunLoopError) -> Complaint {
        switch error.code {
        case .loopEnded: .loopEnded
        case .itemInvalid: .itemInvalid
        case .itemOnOtherLoop: .itemOnOtherLoop
        default: .outOfResources
        }
    }

    func make() {
        guard Complaint.told.bitwiseOr(bit, ordering: .relaxed).oldValue & bit == 0 else { return }
        // A static string ends with a NUL.
        unsafe run_loop_complain(UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self))
    }
}
