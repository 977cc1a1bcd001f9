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
    private var memoryLeft: Int
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

/// Finds where an asynchronous function awaits.
///
/// The captured address of an awaiting function is that of the function that resumes it, a part that the compiler has split
/// off. In optimised code that part begins with what follows the `await`, often on another line. The line of the `await` itself
/// is where the part before it stored the resume function's address. This finds that place in the surrounding code.
public enum Suspension {
    /// The greatest distance in practice between the resume function and the other parts of its function, in bytes.
    public static let reach: UInt64 = 1 << 18

    /// The addresses of the instructions that compute the address `resume`, lowest first. x86-64 only: empty on other
    /// architectures.
    ///
    /// - Parameters:
    ///   - resume: A resume function's first byte, in the same address space as `start`.
    ///   - code: Machine code.
    ///   - start: The address of the first byte of `code`.
    public static func places(of resume: UInt64, in code: [UInt8], at start: UInt64) -> [UInt64] {
        var places: [UInt64] = []
        guard code.count >= leaLength else { return places }
        for index in 0...(code.count - leaLength) where code[index + 1] == 0x8d && isLea(code[index], code[index + 2]) {
            let next = start &+ UInt64(index + leaLength)
            if next &+ UInt64(bitPattern: Int64(offset(in: code, at: index + 3))) == resume {
                places.append(start &+ UInt64(index))
            }
        }
        return places
    }

    /// `lea offset(%rip), %register`: REX.W [.R], 0x8d, mod 0 with r/m 5, a 32-bit offset from the next instruction.
    private static let leaLength = 7

    private static func isLea(_ prefix: UInt8, _ operands: UInt8) -> Bool {
        prefix & 0xfb == 0x48 && operands & 0xc7 == 0x05
    }

    private static func offset(in code: [UInt8], at index: Int) -> Int32 {
        let bits = (0..<4).reduce(UInt32(0)) { $0 | UInt32(code[index + $1]) << UInt32(8 * $1) }
        return Int32(bitPattern: bits)
    }
}
