import CMonitorShims
import RunLoopKit
import Synchronization

/// The boards to be told when the process calls exit(3), so that an end in order is known from a crash.
enum ExitNotes {
    private static let boards = Mutex<[LiveBoard]>([])

    static func add(_ board: LiveBoard) {
        boards.withLock { $0.append(board) }
        _ = monitor_on_exit { status in ExitNotes.tell(status) }
    }

    static func remove(_ board: LiveBoard) {
        boards.withLock { $0.removeAll { $0 === board } }
    }

    /// On the thread that ends the process. Holds it for 50 ms at most; a record that cannot be written by then says less.
    private static func tell(_ status: Int32) {
        let deadline = MonotonicInstant.now + .milliseconds(50)
        for board in boards.withLockIfAvailable({ $0 }) ?? [] { board.noteExit(status, by: deadline) }
    }
}
