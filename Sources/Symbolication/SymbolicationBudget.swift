/// What one call may spend on names. What is over stays without: the address is still told by module and offset.
public struct SymbolicationBudget: Hashable, Sendable {
    /// Monotonic. Checked between steps of some ten microseconds; a read from a slow disk is one step.
    public var time: Duration
    /// Bytes of symbol tables and debug information that the call may read into memory, besides what is there from earlier calls.
    public var memory: Int

    /// Nothing is defaulted.
    public init(time: Duration, memory: Int) {
        (self.time, self.memory) = (time, memory)
    }

    /// For a low-priority thread in a server: 2 seconds, 64 MiB.
    public static let server = SymbolicationBudget(time: .seconds(2), memory: 64 << 20)
    /// For a tool: 60 seconds, 2 GiB.
    public static let tool = SymbolicationBudget(time: .seconds(60), memory: 2 << 30)
}

/// What is left of one call's budget.
final class Allowance {
    private let deadline: ContinuousClock.Instant
    private var memoryLeft: Int
    private var steps = 0

    init(_ budget: SymbolicationBudget) {
        deadline = .now + budget.time
        memoryLeft = budget.memory
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
