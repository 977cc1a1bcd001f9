import Foundation

/// The command line options.
struct Options: Sendable {
    var scripts = 1000
    var seed: UInt64 = 1
    var jobs = 2
    /// Plays only the script with this seed.
    var scriptSeed: UInt64?
    var breaks = false
    var without: Set<KnownDifference> = []
    var isVerbose = false
    var failureLimit = 3
    /// Plays on main threads: each engine in a separate process.
    var isMain = false
    /// Set in such a process: its engine, and the number of its first script in the series.
    var engine: Engine?
    var first = 0
    /// The operations that the shrinker has removed, in this order.
    var drops: [Int] = []

    static let usage = """
        usage: LoopDifferential [--scripts N] [--seed S] [--script-seed S] [--jobs N] [--failures N] [--verbose]
                                [--main] [--break] [--without DIFFERENCE]
        """

    /// Nil if the arguments are invalid.
    init?(_ arguments: [String]) {
        var rest = arguments[...]
        while let name = rest.popFirst() {
            guard set(name, &rest) else { return nil }
        }
    }

    private mutating func set(_ name: String, _ rest: inout ArraySlice<String>) -> Bool {
        switch name {
        case "--break": breaks = true
        case "--verbose": isVerbose = true
        case "--main": isMain = true
        case "--first": return Options.take(&rest, into: &first)
        case "--engine":
            engine = rest.popFirst().flatMap { Engine(rawValue: $0) }
            return engine != nil
        case "--drop":
            var drop = 0
            guard Options.take(&rest, into: &drop) else { return false }
            drops.append(drop)
        case "--scripts": return Options.take(&rest, into: &scripts)
        case "--seed": return Options.take(&rest, into: &seed)
        case "--jobs": return Options.take(&rest, into: &jobs)
        case "--failures": return Options.take(&rest, into: &failureLimit)
        case "--script-seed":
            var one: UInt64 = 0
            guard Options.take(&rest, into: &one) else { return false }
            scriptSeed = one
        case "--without":
            guard let difference = rest.popFirst().flatMap({ KnownDifference(rawValue: $0) }) else { return false }
            without.insert(difference)
        default: return false
        }
        return true
    }

    private static func take<Number: FixedWidthInteger>(_ rest: inout ArraySlice<String>, into number: inout Number)
        -> Bool
    {
        guard let text = rest.popFirst(), let value = Number(text) else { return false }
        number = value
        return true
    }

    /// The script with this number in the series, or the script of `--script-seed`.
    func script(_ index: Int) -> Script {
        let made = Generator.script(seed: scriptSeed ?? seed(of: index), main: isMain)
        return drops.reduce(made) { $0.removing($1) }
    }

    /// The seed of the script with this number in the series.
    func seed(of index: Int) -> UInt64 {
        var random = SplitMix64(seed: seed &+ UInt64(index) &* 0x9E37_79B9)
        return random.next()
    }
}
