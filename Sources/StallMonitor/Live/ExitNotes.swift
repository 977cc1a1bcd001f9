import CMonitorShims
import Locking
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

    /// On the thread that ends the process. Holds it for 50 ms at most if the disk is slow, and for a second at most if a recorder gets no
    /// processor; a record that is not written by then says less. This thread does not write the record: a disk that does not answer would
    /// hold it for ever.
    private static func tell(_ status: Int32) {
        let now = MonotonicInstant.now
        let own = boards.withLockIfAvailable { boards in boards.filter { $0.generation.isCurrent }.map(\.board) } ?? []
        for board in own { board.noteExit(status) }
        for board in own { board.awaitExit(by: now + .milliseconds(50), unlessStarvedBy: now + .seconds(1)) }
    }
}
