import CMonitorShims
import RunLoopKit

/// The boards to be told when the process calls exit(3), so that an end in order is known from a crash.
enum ExitNotes {
    /// A fork's child inherits its parent's, for which nobody writes there.
    private static let boards = ForkSafeMutex<[(board: LiveBoard, generation: ForkGeneration)]>([])

    static func add(_ board: LiveBoard) {
        boards.withLock { $0.append((board, .current)) }
        _ = monitor_on_exit { status in ExitNotes.tell(status) }
    }

    static func remove(_ board: LiveBoard) {
        boards.withLock { $0.removeAll { $0.board === board } }
    }

    /// On the thread that ends the process. Holds it for 50 ms at most; a record that cannot be written by then says less.
    private static func tell(_ status: Int32) {
        let deadline = MonotonicInstant.now + .milliseconds(50)
        let own = boards.withLockIfAvailable { boards in boards.filter { $0.generation.isCurrent }.map(\.board) }
        for board in own ?? [] { board.noteExit(status, by: deadline) }
    }
}
