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
/// Confined to the watchdog's thread. A look costs four clock readings, one small file of /proc and one file for each limited
/// group of the process; an idle process costs nothing.
struct SelfCheck {
    /// All time that was missed so far, and the latest reason.
    private(set) var missed = Duration.zero
    private(set) var reason = PauseKind.late
    /// When it was last known to run.
    private var mark: MonotonicInstant
    private var account: OwnAccount?
    private var clocks: ClockOffsets?
    private var freezer: Freezer
    private var throttling: ThrottleMeter

    /// - Parameter location: The files that show whether the process is frozen or limited.
    init(at time: MonotonicInstant, _ location: SupplyLocation = .init()) {
        mark = time
        account = .read()
        clocks = .read()
        freezer = Freezer(location)
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
    mutating func step(at time: MonotonicInstant, tick: Duration) -> [Absence] {
        let absence = absence(since: mark, at: time, tick: max(.milliseconds(500), tick * 2))
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

/// How long the process's control group was frozen since the last call.
private struct Freezer {
    private let location: SupplyLocation
    private var group: ControlGroup?
    private var known: Duration?
    /// The part of the last count that belongs to the time after the call: the process was frozen just before it could read.
    private var ahead = Duration.zero

    init(_ location: SupplyLocation) {
        self.location = location
        begin()
    }

    /// Counts from now on, in the present group of the process.
    private mutating func begin() {
        group = location.found?.freezer
        known = group?.frozenTime
        ahead = .zero
    }

    /// Begins counting once the group is known.
    mutating func settle() {
        if group == nil { begin() }
    }

    /// - Parameters:
    ///   - time: When the caller read the clock.
    ///   - absence: How long the caller was away until then. The process was frozen for longer only if it was frozen again since.
    mutating func frozenSinceAsked(at time: MonotonicInstant, absence: Duration) -> Duration {
        let before = self
        begin()
        // A process that was moved to another group is judged by its next counts.
        guard group == before.group, let known, let earlier = before.known else { return .zero }
        let frozen = known - earlier + before.ahead
        ahead = max(.zero, min(frozen - absence, .now - time))
        return frozen - ahead
    }
}
