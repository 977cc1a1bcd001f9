import Glibc
import StallDiagnosis
import StallReports

/// What keeps a thread from running from outside: a signal, a tracer, or a freezer. A thread that does not move for such a reason
/// is not stalled. The watchdog itself runs, so the whole process is not stopped, but a single thread can be.
///
/// Read before a stall begins, when one has grown, and at each look while the delay lasts.
enum ThreadStop {
    /// What keeps a thread from running. Nil if nothing does. Reads one file; two more if single threads can be frozen, and
    /// another two for a thread with its own control group.
    static func read(threadID: Int32, countsTraced: Bool, canBeFrozenAlone: Bool) -> PauseKind? {
        guard let status = ThreadStatus.read(threadID: threadID) else { return nil }
        return kind(status, countsTraced: countsTraced) { canBeFrozenAlone && isFrozenAlone(threadID) }
    }

    /// The decision alone.
    static func kind(_ status: ThreadStatus, countsTraced: Bool, isFrozen: () -> Bool) -> PauseKind? {
        // A traced thread may run freely, or a user may step through it: the length of its stalls means nothing.
        if status.tracer != 0, status.state == "t" || !countsTraced { return .traced }
        if status.state == "T" { return .stopped }
        return isFrozen() ? .frozen : nil
    }

    /// Whether the thread's group is frozen. The watchdog's own group is not: the watchdog runs.
    private static func isFrozenAlone(_ threadID: Int32) -> Bool {
        let own = readSmallFile("/proc/thread-self/cgroup")
        guard let others = readSmallFile("/proc/self/task/\(threadID)/cgroup"), others != own else { return false }
        return ControlGroup.of(threadID: threadID)?.isFrozen == true
    }
}

/// The kernel's state of a thread, from `/proc/self/task/TID/status` (proc(5)).
struct ThreadStatus: Hashable, Sendable {
    /// The letter: `R`, `S`, `D`, `T` stopped by a signal, `t` stopped by a tracer.
    var state: Character
    /// The tracer's process number; 0 for none.
    var tracer: Int32

    /// Nil if the thread has ended, or without /proc. Any thread; reads one file.
    static func read(threadID: Int32) -> ThreadStatus? {
        readSmallFile("/proc/self/task/\(threadID)/status").flatMap(ThreadStatus.init(status:))
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

/// Whether the process is crashing. Swift's crash handler stops all other threads, and waits until `swift-backtrace` has printed
/// their positions. That takes seconds, and is not a stall of the loops. The monitor's own threads block signals and continue.
///
/// Other crash handlers are not recognized. Confined to the watchdog's thread.
struct CrashWatch: Sendable {
    /// Whether the process had a handler for the signals of a crash when it was first looked at.
    private let isHandled: Bool
    private let handler: String

    /// - Parameter handler: The name of the process that a crash starts.
    init(handler: String = "swift-backtrace") {
        (isHandled, self.handler) = (Self.handlesCrashes, handler)
    }

    /// Takes one system call, and more only once the process has reset its handler.
    func isUnderWay() -> Bool {
        guard isHandled, !Self.handlesCrashes else { return false }
        return ChildProcesses.alive().contains { $0.name == handler }
    }

    /// Swift's handler begins by resetting all of these signals to the default.
    private static var handlesCrashes: Bool {
        var action = sigaction()
        guard unsafe sigaction(SIGILL, nil, &action) == 0 else { return false }
        return unsafe action.__sigaction_handler.sa_sigaction != nil
    }
}
