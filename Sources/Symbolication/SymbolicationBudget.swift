import Glibc

/// What one call may spend on names. Addresses beyond the budget get no name, but are still reported by module and offset.
public struct SymbolicationBudget: Hashable, Sendable {
    /// CPU time of the calling thread: on a busy machine a low-priority thread gets the same result as on an idle one, only
    /// later. The elapsed time, including waits for processors and disks, may be ten times as long. Checked between steps of
    /// some ten microseconds; a read from a slow disk is one step.
    public var time: Duration
    /// Bytes of symbol tables and debug information that the call may read into memory, besides what earlier calls have read.
    public var memory: Int
    /// Whether compressed debug information is read. It has to be inflated as a whole: the C library's alone takes 50
    /// milliseconds and 17 MB, for lines that are rarely needed. Distributions compress it, compilers usually do not. Function
    /// names do not depend on it.
    public var inflates: Bool

    /// Creates a budget with the given limits.
    public init(time: Duration, memory: Int, inflates: Bool) {
        (self.time, self.memory, self.inflates) = (time, memory, inflates)
    }

    /// For a low-priority thread in a server: 2 seconds, 64 MiB, nothing inflated.
    public static let server = SymbolicationBudget(time: .seconds(2), memory: 64 << 20, inflates: false)
    /// For a tool: 60 seconds, 2 GiB, everything inflated.
    public static let tool = SymbolicationBudget(time: .seconds(60), memory: 2 << 30, inflates: true)
}

/// The remainder of one call's budget.
final class Allowance {
    private let start = ContinuousClock.now
    private let processorStart = processorTime()
    private let time: Duration
    private(set) var memoryLeft: Int
    let inflates: Bool
    private var steps = 0

    /// - Parameter budget: For the calling thread, which must do the work.
    init(_ budget: SymbolicationBudget) {
        time = budget.time
        memoryLeft = budget.memory
        inflates = budget.inflates
    }

    /// Call it in loops: it reads the clock every 256th time.
    func step() throws(SymbolProblem) {
        steps &+= 1
        if steps & 0xff == 0 { try checkTime() }
    }

    func checkTime() throws(SymbolProblem) {
        guard processorTime() - processorStart <= time, ContinuousClock.now - start <= time * 10 else {
            throw SymbolProblem(.outOfTime)
        }
    }

    /// For waiting, which takes no CPU time.
    var timeLeft: Duration { max(.zero, time - (.now - start)) }

    func spend(_ bytes: Int) throws(SymbolProblem) {
        guard bytes <= memoryLeft else { throw SymbolProblem(.outOfMemory) }
        memoryLeft -= bytes
    }
}

/// The CPU time of the calling thread.
private func processorTime() -> Duration {
    var time = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}
