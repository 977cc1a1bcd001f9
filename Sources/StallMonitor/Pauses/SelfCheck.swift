import Glibc
import RunLoopKit
import StallDiagnosis
import StallReports

/// A time in which the watchdog was not awake though it should have been, or in which the clocks jumped.
struct Absence: Hashable, Sendable {
    var kind: PauseKind
    var length: Duration
}

/// The watchdog's account of its own wakefulness. What a watchdog sees of a pause depends on who stood still:
///
/// - The whole process (SIGSTOP, a freezer, a debugger's stop), or the machine under it: both stood still, and the watchdog wakes
///   late. It did not wait for a processor meanwhile; that tells a pause from a machine with too much to do. The time counts
///   towards no stall.
/// - Too much to do, or a limit of the control group: the watchdog wakes late, and the kernel counts the lateness as waiting for a
///   processor, or the group's time without any. The watched loops really stood still all that time, so it counts.
/// - The machine was suspended: monotonic time stood still too, and no length is wrong. Only boot time shows it.
/// - The watched thread alone (a tracer, a freezer of single threads): the watchdog is on time. See ``ThreadStop``.
///
/// A pause that begins and ends while every loop is at rest is not noticed: nobody looks, and nothing can stall.
///
/// Confined to the watchdog's thread. It costs a look four readings of clocks, one small file of /proc and one for each limited group
/// that the process is in, and an idle process nothing.
struct SelfCheck {
    /// All time that was missed so far, and why at last.
    private(set) var missed = Duration.zero
    private(set) var reason = PauseKind.late
    /// When it was last known to be awake.
    private var mark: MonotonicInstant
    private var account: OwnAccount?
    private var clocks: ClockOffsets?
    private var freezer: Freezer
    private var throttling: ThrottleMeter

    /// - Parameter location: tells by which files the process can be frozen, and is limited.
    init(at time: MonotonicInstant, _ location: SupplyLocation = .init()) {
        mark = time
        account = .read()
        clocks = .read()
        freezer = Freezer(location)
        throttling = ThrottleMeter(location, at: time)
    }

    /// First, on the watchdog's thread, which began after `time`: all that is counted of it is later than that.
    mutating func begin(since time: MonotonicInstant) {
        mark = time
        if account != nil { account = .zero }
    }

    /// The wait is over that should have ended at `due`. What was noticed, the suspensions first.
    mutating func wake(due: MonotonicInstant, at time: MonotonicInstant, tick: Duration) -> [Absence] {
        var absences = jumps()
        // Until `mark` it was awake, or its absence is told already.
        if let absence = absence(since: max(due, mark), at: time, tick: tick) { absences.append(absence) }
        return absences
    }

    /// Still awake. A stop can also come between two loops of one look; a capture that waits for its thread is none.
    mutating func step(at time: MonotonicInstant, tick: Duration) -> [Absence] {
        let absence = absence(since: mark, at: time, tick: max(.milliseconds(500), tick * 2))
        return absence.map { [$0] } ?? []
    }

    /// The look is done: later lateness is judged by what was counted until now.
    mutating func rest(at time: MonotonicInstant) {
        freezer.settle()
        throttling.begin(at: time)
        mark = time
        account = .read()
    }

    /// The parked wait is over. A departure from rest has ended it, and the process may have been stopped between the two.
    ///
    /// - Returns: when the watchdog could have run: what it has waited for a processor since, the watched loops stood.
    mutating func unpark(
        departure: MonotonicInstant?,
        at time: MonotonicInstant,
        tick: Duration
    ) -> (runnable: MonotonicInstant, absences: [Absence]) {
        let before = account
        // While the watchdog slept, a limit can only have held others of the group.
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
        // A thread that a limit stops while it runs waits in no queue (Linux 6.18).
        accounted = accounted.map { max($0, throttling.throttledSinceBegun(at: time)) }
        // A frozen process can count as one that waits for a processor.
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
        // With a tick of a millisecond every hiccup of the machine would be one.
        return unexplained >= .milliseconds(50) ? Absence(kind: reason, length: unexplained) : nil
    }

    /// What a time was in which the whole process stood.
    static func kind(of length: Duration, isAccounted: Bool, frozen: Duration, isTraced: Bool) -> PauseKind {
        // A freeze begins and ends with a walk over all threads, and may be the smaller part of a longer pause.
        if frozen >= length / 2 { return .frozen }
        if isTraced { return .traced }
        // Without an account it may as well have been a machine with too much to do.
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

/// How long the process's control group was frozen, from one question to the next.
private struct Freezer {
    private let location: SupplyLocation
    private var group: ControlGroup?
    private var known: Duration?
    /// What was counted at the last question but belongs after its time: the process was frozen just before it could ask.
    private var ahead = Duration.zero

    init(_ location: SupplyLocation) {
        self.location = location
        begin()
    }

    /// Counts from now on, in the group where the process was found last.
    private mutating func begin() {
        group = location.found?.freezer
        known = group?.frozenTime
        ahead = .zero
    }

    /// Begins as soon as it is known where.
    mutating func settle() {
        if group == nil { begin() }
    }

    /// - Parameter time: when the caller looked at the clock.
    /// - Parameter absence: how long it was away by then. It has been frozen longer only if it was frozen again since.
    mutating func frozenSinceAsked(at time: MonotonicInstant, absence: Duration) -> Duration {
        let before = self
        begin()
        // A process that was moved to another group is judged by what comes next.
        guard group == before.group, let known, let earlier = before.known else { return .zero }
        let frozen = known - earlier + before.ahead
        ahead = max(.zero, min(frozen - absence, .now - time))
        return frozen - ahead
    }
}
