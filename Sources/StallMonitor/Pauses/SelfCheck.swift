import Glibc
import RunLoopKit
import StallDiagnosis
import StallReports

/// A time in which the watchdog should have run but did not, or a jump of the clocks.
struct Absence: Hashable, Sendable {
    var kind: PauseKind
    var length: Duration
}

/// Checks whether the watchdog itself ran when it should. What it sees of a pause depends on what was stopped:
///
/// - The whole process (SIGSTOP, a freezer, a debugger), or the machine: the loops and the watchdog were stopped, and the
///   watchdog wakes late. It was not waiting for a processor, which distinguishes this from a busy machine. The time is excluded.
/// - A busy machine, or a limit of the control group: the watchdog wakes late, and the kernel counts the delay as waiting for a
///   processor, or as time in which the group was held back. The loops really did not run, so the time counts.
/// - The machine was suspended: monotonic time was stopped too, so no length is wrong. Only boot time shows it.
/// - The watched thread alone (a tracer, a freezer of single threads): the watchdog is on time. See ``ThreadStop``.
///
/// A pause that begins and ends while every loop is at rest is not noticed; no loop can stall in it.
///
/// Confined to the watchdog's thread. A look reads four clocks, one small file of /proc, and one file for each limited group of
/// the process. The end of a parked wait reads one more file where the kernel counts freezes. An idle process costs nothing.
struct SelfCheck {
    /// All time that was missed so far, and the latest reason.
    private(set) var missed = Duration.zero
    private(set) var reason = PauseKind.late
    /// When it was last known to run.
    private(set) var mark: MonotonicInstant
    private var account: OwnAccount?
    private var clocks: ClockOffsets?
    private var freezer: FreezeMeter
    private var throttling: ThrottleMeter

    /// - Parameter location: The files that show whether the process is frozen or limited.
    init(at time: MonotonicInstant, _ location: SupplyLocation = .init()) {
        mark = time
        account = .read()
        clocks = .read()
        freezer = FreezeMeter(location)
        throttling = ThrottleMeter(location, at: time)
    }

    /// Called on the watchdog's thread, which was started after `time`. Its account begins at zero.
    mutating func begin(since time: MonotonicInstant) {
        mark = time
        if account != nil { account = .zero }
    }

    /// Ends a wait that should have ended at `due`. Returns what was missed, suspensions first.
    mutating func wake(due: MonotonicInstant, at time: MonotonicInstant, tick: Duration) -> [Absence] {
        var absences = jumps()
        // Until `mark` the watchdog was running, or the absence was already recorded.
        if let absence = absence(since: max(due, mark), at: time, tick: tick) { absences.append(absence) }
        return absences
    }

    /// Checks between two loops of one look, because a stop can also come then. A capture that waits for its thread is not a
    /// stop.
    ///
    /// - Parameter captured: How much of the time since the previous step captures of all threads have taken.
    mutating func step(at time: MonotonicInstant, tick: Duration, captured: Duration = .zero) -> [Absence] {
        let due = min(time, mark + captured)
        let absence = absence(since: due, at: time, tick: max(.milliseconds(500), tick * 2))
        return absence.map { [$0] } ?? []
    }

    /// Ends a look. Later delays are judged by the counts since now.
    mutating func rest(at time: MonotonicInstant) {
        freezer.settle()
        throttling.begin(at: time)
        mark = time
        account = .read()
    }

    /// Ends the parked wait after a departure from rest. The process may have been stopped since that departure.
    ///
    /// - Returns: When the watchdog became ready to run. While it has waited for a processor since then, the loops did not run
    ///   either.
    mutating func unpark(
        departure: MonotonicInstant?,
        at time: MonotonicInstant,
        tick: Duration
    ) -> (runnable: MonotonicInstant, absences: [Absence]) {
        let before = account
        // While the watchdog was parked, a limit can only have held back other threads of the group.
        throttling.begin(at: time)
        // A freeze before the departure has kept nobody from running since.
        if time - (departure ?? time) <= tick { freezer.forget(before: time) }
        let absences = wake(due: departure ?? time, at: time, tick: tick)
        account = .read()
        guard let before, let account else { return (time, absences) }
        return (time.advanced(by: .zero - account.accounted(since: before)), absences)
    }

    private mutating func absence(since due: MonotonicInstant, at time: MonotonicInstant, tick: Duration) -> Absence? {
        defer { mark = time }
        let oversleep = time - due
        guard oversleep > tick else { return nil }
        let now = OwnAccount.read()
        defer { account = now }
        var accounted = account.flatMap { before in now.map { $0.accounted(since: before) } }
        // The kernel does not count a thread as waiting if a limit stops it while it runs (Linux 6.18).
        accounted = accounted.map { max($0, throttling.throttledSinceBegun(at: time)) }
        // The kernel may count a frozen process as one that waits for a processor.
        let frozen = freezer.frozenSinceAsked(at: time, absence: oversleep)
        let unexplained = max(oversleep - (accounted ?? .zero), min(frozen, oversleep))
        guard unexplained > tick else { return nil }
        missed += unexplained
        reason = Self.kind(
            of: unexplained,
            isAccounted: accounted != nil,
            frozen: frozen,
            isTraced: (ThreadStatus.read(threadID: getpid())?.tracer ?? 0) != 0
        )
        // With a tick of a millisecond, every small delay of the machine would be recorded.
        return unexplained >= .milliseconds(50) ? Absence(kind: reason, length: unexplained) : nil
    }

    /// Why the whole process was stopped.
    static func kind(of length: Duration, isAccounted: Bool, frozen: Duration, isTraced: Bool) -> PauseKind {
        // A freeze begins and ends with a pass over all threads, and may be the smaller part of a longer pause.
        if frozen >= length / 2 { return .frozen }
        if isTraced { return .traced }
        // Without an account, a busy machine may have been the reason.
        return isAccounted ? .stopped : .late
    }

    private mutating func jumps() -> [Absence] {
        guard let now = ClockOffsets.read() else { return [] }
        defer { clocks = now }
        guard let clocks else { return [] }
        let suspension = now.suspension(since: clocks).map { Absence(kind: .suspended, length: $0) }
        let step = now.step(since: clocks).map { Absence(kind: .clockStep, length: max($0, .zero - $0)) }
        return [suspension, step].compactMap { $0 }
    }
}

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
        // A traced thread may run freely, or a user may step through it: the length of its stalls means nothing. Only a tracer
        // stops a thread in this state, but one outside of our pid namespace, such as a container's, has no number here.
        if status.state == "t" || (status.tracer != 0 && !countsTraced) { return .traced }
        if status.state == "T" { return .stopped }
        return isFrozen() ? .frozen : nil
    }

    /// Whether the thread's group is frozen. The watchdog's own group is not: the watchdog runs.
    private static func isFrozenAlone(_ threadID: Int32) -> Bool {
        let own = readControlGroups(in: "/proc/thread-self")
        guard let others = readControlGroups(in: "/proc/self/task/\(threadID)"), others != own else { return false }
        return ControlGroup.of(threadID: threadID)?.isFrozen == true
    }
}

/// The kernel's state of a thread, from `/proc/self/task/TID/status` (proc(5)).
struct ThreadStatus: Hashable, Sendable {
    /// The letter: `R`, `S`, `D`, `T` stopped by a signal, `t` stopped by a tracer.
    var state: Character
    /// The tracer's process number; 0 for none, and for one outside of our pid namespace.
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
