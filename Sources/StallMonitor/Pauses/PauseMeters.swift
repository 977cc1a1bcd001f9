import RunLoopKit
import StallDiagnosis
import StallReports

/// The kernel's account of the calling thread's processor time (proc(5), `/proc/thread-self/schedstat`). A thread that found no
/// free processor waited all that time; a thread that was stopped or frozen did not.
struct OwnAccount: Hashable, Sendable {
    /// Time on a processor, in nanoseconds.
    var ran: UInt64
    /// Time ready to run without a processor, in nanoseconds.
    var waited: UInt64

    /// The account of a new thread.
    static let zero = OwnAccount(ran: 0, waited: 0)

    private init(ran: UInt64, waited: UInt64) {
        (self.ran, self.waited) = (ran, waited)
    }

    /// Nil without /proc. Takes three system calls and no allocation, because it is read at every look.
    static func read() -> OwnAccount? {
        unsafe withStartOfFile("/proc/thread-self/schedstat", limit: 96) { unsafe OwnAccount(text: $0) }
    }

    /// Three decimal numbers: the last is how often the thread was given a processor. It runs, so if that is 0, too, the kernel does not count
    /// (CONFIG_SCHED_INFO): nil.
    init?(text: some Collection<UInt8>) {
        // Inline, so that reading allocates nothing.
        var numbers = InlineArray<3, UInt64>(repeating: 0)
        var spaces = 0
        for byte in text {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9") where spaces < 3:
                numbers[spaces] = numbers[spaces] &* 10 &+ UInt64(byte - UInt8(ascii: "0"))
            case UInt8(ascii: " "): spaces += 1
            default: if spaces < 2 { return nil }
            }
        }
        guard spaces > 1, (numbers[0], numbers[1], numbers[2]) != (0, 0, 0) else { return nil }
        (ran, waited) = (numbers[0], numbers[1])
    }

    /// The time since `earlier` in which the thread ran or waited for a processor, so it was not stopped.
    func accounted(since earlier: OwnAccount) -> Duration {
        .nanoseconds(Int64(clamping: (ran &- earlier.ran) &+ (waited &- earlier.waited)))
    }
}

/// How long limits (cpu.max, cpu.cfs_quota_us) kept the process's control groups from the processors since the last call.
struct ThrottleMeter {
    private let location: SupplyLocation
    private var groups: [SupplyFiles.LimitedGroup] = []
    /// The count of each group. Nil where it cannot be read.
    private var counts: [ProcessorSupply.Throttling?] = []
    private var begun: MonotonicInstant

    /// A file is read for each limit, so this is not done at every look of a short tick.
    private static let shortest = Duration.milliseconds(45)

    init(_ location: SupplyLocation, at time: MonotonicInstant) {
        self.location = location
        begun = time
        count(at: time)
    }

    /// Counts from now on, or from the last reading if that is very recent.
    mutating func begin(at time: MonotonicInstant) {
        if time - begun >= Self.shortest { count(at: time) }
    }

    /// The time of the group that was held back longest. The kernel sums the time of all processors of a group; in wall time it
    /// is at most the periods in which the group was held back.
    mutating func throttledSinceBegun(at time: MonotonicInstant) -> Duration {
        let before = self
        count(at: time)
        // If the limits have changed, the counts belong to other groups.
        guard groups == before.groups else { return .zero }
        let held = zip(groups, zip(counts, before.counts)).map { group, counts -> Duration in
            guard let now = counts.0, let earlier = counts.1 else { return .zero }
            let change = now.grown(since: earlier)
            let sum = Duration.nanoseconds(Int64(clamping: change.throttledNanoseconds))
            return min(sum, group.period * Int(clamping: min(change.throttledPeriods, 1_000_000)))
        }
        return held.max() ?? .zero
    }

    private mutating func count(at time: MonotonicInstant) {
        groups = location.found?.limited ?? []
        counts = groups.map(\.throttling)
        begun = time
    }
}

/// How long the process's control group was frozen since the last call.
struct FreezeMeter {
    private let location: SupplyLocation
    private var group: ControlGroup?
    private var known: Duration?
    /// The part of the last count that came too early, and is added to the next one. The count is read a little after the caller has read the
    /// clock: a freeze in between is counted already, but belongs to the time after that.
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

    /// Makes the freezes before `time` count towards no later absence.
    mutating func forget(before time: MonotonicInstant) {
        // Where the kernel does not count freezes there is nothing to read.
        guard known != nil else { return }
        let before = self
        begin()
        noteAhead(before.frozen(until: self), at: time)
    }

    /// Begins counting once the group is known.
    mutating func settle() {
        if group == nil { begin() }
    }

    /// How long the process was frozen from the last call until `time`.
    ///
    /// - Parameters:
    ///   - time: When the caller read the clock.
    ///   - absence: How long the caller was away until then. What is counted beyond that came after `time`.
    mutating func frozenSinceAsked(at time: MonotonicInstant, absence: Duration) -> Duration {
        let before = self
        begin()
        let frozen = before.frozen(until: self)
        noteAhead(frozen - absence, at: time)
        return frozen - ahead
    }

    /// How long the process was frozen between two countings. A process that was moved to another group is judged by its next counts.
    private func frozen(until later: FreezeMeter) -> Duration {
        guard later.group == group, let count = later.known, let known else { return .zero }
        return count - known + ahead
    }

    /// Keeps for the next call what may belong to it: no more than the time since `time`.
    ///
    /// - Parameters:
    ///   - frozen: The part of the count that may be of a freeze after `time`.
    ///   - time: When the caller read the clock.
    private mutating func noteAhead(_ frozen: Duration, at time: MonotonicInstant) {
        ahead = max(.zero, min(frozen, .now - time))
    }
}
