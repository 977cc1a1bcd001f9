import Glibc
import StallDiagnosis
import StallReports

/// Why a thread that stands still is not stalled: it was kept from moving from outside, or it is where it should be. Asked before a
/// stall is announced, when one has grown, and at each look while the delay lasts. The watchdog is awake, so the whole process is not stopped; the thread
/// alone can be.
enum StallExcuse {
    /// What keeps a thread standing. Reads one file; where threads can be frozen singly two more, and again two for a thread with a
    /// control group of its own.
    static func read(threadID: Int32, countsTraced: Bool, canBeFrozenAlone: Bool) -> PauseKind? {
        guard let standing = ThreadStanding.read(threadID: threadID) else { return nil }
        return kind(standing, countsTraced: countsTraced) { canBeFrozenAlone && isFrozenAlone(threadID) }
    }

    /// The decision alone.
    static func kind(_ standing: ThreadStanding, countsTraced: Bool, isFrozen: () -> Bool) -> PauseKind? {
        // A traced thread may run as it likes, or be stepped through by a person: no length of its stalls means anything.
        if standing.tracer != 0, standing.state == "t" || !countsTraced { return .traced }
        if standing.state == "T" { return .stopped }
        return isFrozen() ? .frozen : nil
    }

    /// A group that holds the watchdog is not frozen: it could not ask.
    private static func isFrozenAlone(_ threadID: Int32) -> Bool {
        let own = readSmallFile("/proc/thread-self/cgroup")
        guard let others = readSmallFile("/proc/self/task/\(threadID)/cgroup"), others != own else { return false }
        return ControlGroup.of(threadID: threadID)?.isFrozen == true
    }
}

/// Whether a thread that does not move could move at all: what the kernel says of it in `/proc/self/task/TID/status` (proc(5)).
struct ThreadStanding: Hashable, Sendable {
    /// The letter: `R`, `S`, `D`, `T` stopped by a signal, `t` stopped by a tracer.
    var state: Character
    /// The tracer's process number; 0 for none.
    var tracer: Int32

    /// Nil when the thread is gone or /proc is not there. Any thread; one file.
    static func read(threadID: Int32) -> ThreadStanding? {
        readSmallFile("/proc/self/task/\(threadID)/status").flatMap(ThreadStanding.init(status:))
    }

    /// Parses the file's text.
    init?(status: String) {
        guard let state = Self.field("State", of: status)?.first else { return nil }
        self.state = state
        tracer = Self.field("TracerPid", of: status).flatMap { Int32($0) } ?? 0
    }

    private static func field(_ name: String, of status: String) -> Substring? {
        let line = status.split(separator: "\n").first { $0.hasPrefix(name + ":") }
        return line?.dropFirst(name.count + 1).drop { $0 == "\t" || $0 == " " }
    }
}
