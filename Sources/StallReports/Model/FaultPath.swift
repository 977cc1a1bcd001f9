/// The path from a fault outwards, in source functions, from which a fingerprint is made.
struct FaultPath {
    /// The culprit, then its callers. If the culprit is part of a recursion, the recursion's functions come first, sorted.
    private(set) var names: [String] = []

    /// Enough to distinguish callers, and so few that the server's entry point does not matter.
    private static let depth = 4
    /// A recursion of more functions than this takes a different path each time.
    private static let recursionLimit = 4
    /// How many frames outwards from a closure its enclosing function is searched.
    private static let closureReach = 32

    private struct Step {
        var identity: String
        var enclosing: [String]
        var isOwn: Bool
        var isTransparent: Bool
    }

    init(
        frames: [StallReport.Frame],
        modules: [StallReport.Module],
        executable: String?,
        source: (String) -> Fingerprint.SourceName
    ) {
        let counts = Self.countingFrames(frames, modules, executable)
        var known: [String: Fingerprint.SourceName] = [:]
        let steps = frames.map { frame in
            let name = frame.symbol.map { symbol in
                let name = known[symbol] ?? source(symbol)
                known[symbol] = name
                return name
            }
            return Step(
                identity: Self.identity(frame, name, modules),
                enclosing: name?.enclosing ?? [],
                isOwn: counts(frame) && (frame.own || name?.isTransparent != true),
                isTransparent: name?.isTransparent ?? false
            )
        }
        names = Self.withRecursionFirst(Self.withoutClosures(steps))
    }

    /// Selects the frames that count: own ones; without own ones, the executable's; without these, all. Compiler-generated frames
    /// never count.
    private static func countingFrames(
        _ frames: [StallReport.Frame],
        _ modules: [StallReport.Module],
        _ executable: String?
    ) -> (StallReport.Frame) -> Bool {
        if frames.contains(where: \.own) { return { $0.own } }
        let programs = Set(modules.indices.filter { modules[$0].path == executable })
        let isOfProgram = { (frame: StallReport.Frame) in frame.module.map(programs.contains) == true }
        return frames.contains(where: isOfProgram) ? isOfProgram : { _ in true }
    }

    /// The names of the counting frames, in order. A closure that runs inside its function is left out, together with the
    /// frames in between.
    private static func withoutClosures(_ steps: [Step]) -> [String] {
        var names: [String] = []
        var index = 0
        while index < steps.count {
            if steps[index].isOwn, let outer = function(around: index, steps) {
                index = outer
                continue
            }
            if steps[index].isOwn { names.append(steps[index].identity) }
            index += 1
        }
        return names
    }

    /// The frame of the outermost function that encloses the closure and in which it runs. Nil if it is not a closure, and for
    /// a closure that was stored and called later.
    private static func function(around index: Int, _ steps: [Step]) -> Int? {
        let enclosing = steps[index].enclosing
        guard !enclosing.isEmpty else { return nil }
        var found: Int?
        for outer in steps.indices.dropFirst(index + 1).prefix(closureReach) {
            guard steps[outer].isOwn || steps[outer].isTransparent else { break }
            if steps[outer].isOwn, enclosing.contains(steps[outer].identity) {
                found = outer
                if steps[outer].identity == enclosing.last { break }
            }
        }
        return found
    }

    private static func withRecursionFirst(_ path: [String]) -> [String] {
        guard let culprit = path.first, let outermost = path.lastIndex(of: culprit) else { return [] }
        let recursion = Set(path[...outermost])
        var names = [culprit]
        if recursion.count <= recursionLimit { names = recursion.sorted() }
        let limit = names.count + depth - 1
        for name in path where names.count < limit && !names.contains(name) { names.append(name) }
        return names
    }

    private static func identity(
        _ frame: StallReport.Frame,
        _ name: Fingerprint.SourceName?,
        _ modules: [StallReport.Module]
    ) -> String {
        if let name, name.isQualified { return name.name }
        let module = modules.module(of: frame)
        let file = module.map { stableName(ofPath: $0.path) } ?? "?"
        if let name = name?.name ?? frame.function { return "\(file) \(name)" }
        return "\(module?.buildID ?? file)+\(frame.functionStart)"
    }

    /// The file's base name, cut after `.so`.
    private static func stableName(ofPath path: String) -> String {
        let base = path.split(separator: "/").last.map(String.init) ?? ""
        let parts = base.split(separator: ".", omittingEmptySubsequences: false)
        guard let suffix = parts.firstIndex(of: "so") else { return base }
        return parts[...suffix].joined(separator: ".")
    }
}
