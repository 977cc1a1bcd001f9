import Foundation
import StackCapture
import Symbolication

/// The captures of one load, and whether each stack can be right: its outer frames have the same addresses every time, and the
/// next inner frame is the function of the load.
struct Tally: CustomStringConvertible {
    let isChurn: Bool
    /// The C runtime's start and end code of modules has no unwind tables.
    let mayLackTables: Bool
    var seconds = 0.0
    var rounds: UInt64 = 0
    private(set) var stacks = 0
    private(set) var failures: [String: Int] = [:]
    var wrong: [String] = []
    private var quiet = 0
    private var untabled = 0
    /// From trial_storm_work's caller outwards. Taken from the first stack, by name.
    private var outer: [UInt] = []
    private var knownNames: [UInt: String] = [:]

    init(isChurn: Bool, mayLackTables: Bool) {
        self.isChurn = isChurn
        self.mayLackTables = mayLackTables
    }

    var description: String {
        "\(column(stacks, 8, right: true)) stacks, \(quiet) quiet, \(wrong.count) wrong, \(untabled) through code without table, "
            + "failed \(failures), \(rounds) rounds, \(String(format: "%.0f", seconds)) s"
    }

    mutating func note(_ result: Result<CapturedStack, CaptureError>) {
        switch result {
        case .failure(let error):
            failures[error.code.name, default: 0] += 1
            let isExpected = isChurn || [.threadKeptMoving, .notDelivered].contains(error.code)
            if !isExpected { wrong.append("\(error)") }
        case .success(let stack):
            stacks += 1
            quiet += stack.method == .quiet ? 1 : 0
            judge(stack)
        }
    }

    private mutating func judge(_ stack: CapturedStack) {
        if let problem = problem(with: stack), wrong.count < 1000 {
            wrong.append(
                "\(problem): \(stack.method) \(stack.truncation.map { "\($0)" } ?? "") \(Names.of(stack))"
            )
        }
    }

    private mutating func problem(with stack: CapturedStack) -> String? {
        if isChurn { return churnProblem(with: stack) }
        let hasUntabled =
            stack.frames.contains { $0.found == .framePointer } || stack.truncation == .noUnwindTable
        if hasUntabled && mayLackTables {
            untabled += 1
            return nil
        }
        guard stack.isComplete else { return "not complete" }
        let addresses = stack.frames.map(\.address)
        if outer.isEmpty, let problem = learn(addresses, Names.of(stack)) { return problem }
        guard addresses.count > outer.count, addresses.suffix(outer.count).elementsEqual(outer) else {
            return "outer frames"
        }
        return isInLoad(addresses.dropLast(outer.count)) ? nil : "the load's frames"
    }

    /// A thread that has just begun, or is about to end, may only have the frames of its start.
    private mutating func churnProblem(with stack: CapturedStack) -> String? {
        guard stack.isComplete, let last = stack.frames.last?.address else { return "not complete" }
        let addresses = stack.frames.map(\.address)
        if outer.isEmpty && Names.of(stack).contains("trial_storm_work") {
            return learn(addresses, Names.of(stack))
        }
        return outer.isEmpty || addresses.count == 1 || last == outer.last ? nil : "the first frame"
    }

    private mutating func learn(_ addresses: [UInt], _ names: [String]) -> String? {
        guard let work = names.firstIndex(of: "trial_storm_work") else { return "no trial_storm_work" }
        let depth = names[work...].count { $0 == "trial_storm_descend" }
        guard depth == 7, names.contains("trial_storm_thread_main") else { return "known frames" }
        outer = Array(addresses[(work + 1)...])
        return nil
    }

    /// Whether the frame is trial_storm_work, followed by the functions it called, or by an interruption.
    private mutating func isInLoad(_ inner: ArraySlice<UInt>) -> Bool {
        guard let work = inner.last, name(of: work, isInnermost: inner.count == 1) == "trial_storm_work"
        else {
            return false
        }
        guard let load = inner.dropLast().last else { return true }
        let name = name(of: load, isInnermost: inner.count == 2)
        return name.contains("load_") || name.contains("restore_rt")
    }

    private mutating func name(of address: UInt, isInnermost: Bool) -> String {
        if let known = knownNames[address] { return known }
        let resolvable = ResolvableAddress(address: address, isReturnAddress: !isInnermost)
        let name = Symbolicator().resolve([resolvable], budget: .tool).frames.first?.symbol ?? "?"
        knownNames[address] = name
        return name
    }
}

/// The resources that the process holds.
struct Holdings: CustomStringConvertible {
    var residentKiB = 0
    var descriptors = 0
    var threads = 0

    /// - Parameter most: The number of threads that are expected to be left: one that has been joined is listed until the kernel has
    ///   ended it, which needs a processor.
    static func now(awaiting most: Int = .max) -> Holdings {
        usleep(100_000)
        let files = FileManager.default
        func threads() -> Int { (try? files.contentsOfDirectory(atPath: "/proc/self/task"))?.count ?? 0 }
        let end = ContinuousClock.now + .seconds(30)
        while threads() > most, ContinuousClock.now < end { usleep(10_000) }
        let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
        let resident =
            status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }?.filter(\.isNumber) ?? ""
        return Holdings(
            residentKiB: Int(resident) ?? 0,
            descriptors: (try? files.contentsOfDirectory(atPath: "/proc/self/fd"))?.count ?? 0,
            threads: threads()
        )
    }

    var description: String {
        "\(residentKiB) KiB resident, \(descriptors) descriptors, \(threads) threads"
    }
}
