/// The result of playing a script on one engine.
struct Performance: Sendable {
    let trace: [String]
    let meetings: Meetings
    let tally: Tally

    /// Plays the script on a separate thread, which has ended when this returns.
    static func of(
        _ script: Script,
        on engine: Engine,
        without: Set<KnownDifference> = [],
        isVerbose: Bool = false
    ) -> Performance {
        let player = Player(script, without: without, isVerbose: isVerbose)
        LoopThread { player.play(on: engine) }.join()
        player.close()
        return Performance(trace: player.trace, meetings: player.meetings, tally: player.tally)
    }
}

/// One script on both engines.
struct Comparison: Sendable {
    let kit: Performance
    let foundation: Performance

    var areEqual: Bool { kit.trace == foundation.trace }

    init(kit: Performance, foundation: Performance, breaks: Bool) {
        self.kit = kit
        self.foundation = breaks ? foundation.broken : foundation
    }

    /// Plays a number of scripts from `options.first` on, on main threads.
    /// A script that the process did not reach has an empty trace.
    static func onMain(_ options: Options) -> [Comparison] {
        let kit = MainProcess.performances(options, on: .kit)
        let foundation = MainProcess.performances(options, on: .foundation)
        return (0..<options.scripts).map { index in
            Comparison(
                kit: index < kit.count ? kit[index] : .none,
                foundation: index < foundation.count ? foundation[index] : .none,
                breaks: options.breaks
            )
        }
    }

    init(_ script: Script, options: Options, isVerbose: Bool = false) {
        kit = .of(script, on: .kit, without: options.without, isVerbose: isVerbose)
        let other = Performance.of(script, on: .foundation, without: options.without, isVerbose: isVerbose)
        foundation = options.breaks ? other.broken : other
    }

    /// The traces side by side, starting shortly before the first difference.
    var report: String {
        let count = max(kit.trace.count, foundation.trace.count)
        let first = (0..<count).first { kit.line($0) != foundation.line($0) } ?? 0
        let rows = (max(0, first - 40)..<min(count, first + 12)).map { index in
            let left = kit.line(index)
            let padding = String(repeating: " ", count: max(1, 70 - left.count))
            return "\(left == foundation.line(index) ? "  " : "! ")\(left)\(padding)\(foundation.line(index))"
        }
        return (["  RunLoopKit" + String(repeating: " ", count: 60) + "Foundation"] + rows).joined(separator: "\n")
    }
}

extension Performance {
    static let none = Performance(trace: ["not played"], meetings: Meetings(), tally: Tally())

    fileprivate func line(_ index: Int) -> String { index < trace.count ? trace[index] : "" }

    /// With two different neighbours exchanged, to check that the comparison detects it.
    fileprivate var broken: Performance {
        var trace = trace
        if let index = trace.indices.dropLast().last(where: { trace[$0] != trace[$0 + 1] }) {
            trace.swapAt(index, index + 1)
        }
        return Performance(trace: trace, meetings: meetings, tally: tally)
    }
}
