/// What one call may spend on names. What is over stays without: the address is still told by module and offset.
public struct SymbolicationBudget: Hashable, Sendable {
    /// Monotonic. Checked between steps of some ten microseconds; a read from a slow disk is one step.
    public var time: Duration
    /// Bytes of symbol tables and debug information that the call may read into memory, besides what is there from earlier calls.
    public var memory: Int
    /// Whether compressed debug information is read. It has to be inflated as a whole: the C library's alone takes 50 milliseconds and
    /// 17 MB, for lines that seldom matter. Distributions compress it, compilers usually do not. Function names do not depend on it.
    public var inflates: Bool

    /// Nothing is defaulted.
    public init(time: Duration, memory: Int, inflates: Bool) {
        (self.time, self.memory, self.inflates) = (time, memory, inflates)
    }

    /// For a low-priority thread in a server: 2 seconds, 64 MiB, nothing inflated.
    public static let server = SymbolicationBudget(time: .seconds(2), memory: 64 << 20, inflates: false)
    /// For a tool: 60 seconds, 2 GiB, everything inflated.
    public static let tool = SymbolicationBudget(time: .seconds(60), memory: 2 << 30, inflates: true)
}

/// What is left of one call's budget.
final class Allowance {
    private let deadline: ContinuousClock.Instant
    private var memoryLeft: Int
    let inflates: Bool
    private var steps = 0

    init(_ budget: SymbolicationBudget) {
        deadline = .now + budget.time
        memoryLeft = budget.memory
        inflates = budget.inflates
    }

    /// Call it where work goes on: looks at the clock every 256th time.
    func step() throws(SymbolProblem) {
        steps &+= 1
        if steps & 0xff == 0 { try checkTime() }
    }

    func checkTime() throws(SymbolProblem) {
        if ContinuousClock.now > deadline { throw SymbolProblem(.outOfTime) }
    }

    var timeLeft: Duration { deadline - .now }

    func spend(_ bytes: Int) throws(SymbolProblem) {
        guard bytes <= memoryLeft else { throw SymbolProblem(.outOfMemory) }
        memoryLeft -= bytes
    }
}
