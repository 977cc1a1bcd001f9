public import StallReports
public import Symbolication

/// Finds names and lines for the frames of reports that were written without, by their modules' build ids. Any thread may call.
public struct ReportNaming: Sendable {
    private let symbolicator: Symbolicator
    private let ownCode: OwnCode

    /// What was found.
    public struct Findings: Sendable {
        /// For the report's frames. Leaves what they have as it is.
        public var amendment: ReportAmendment
        /// Why names or lines are missing still.
        public var problems: [SymbolProblem]
    }

    /// - Parameter ownCode: decides of functions that the report does not name. Those that it names stay own or not.
    public init(symbolicator: Symbolicator, ownCode: OwnCode = OwnCode()) {
        (self.symbolicator, self.ownCode) = (symbolicator, ownCode)
    }

    /// Asks for every frame that lacks its function or its line.
    public func findings(for report: StallReport, budget: SymbolicationBudget = .tool) -> Findings {
        let lists = report.stacks.map(\.frames) + report.stacks.map { $0.async?.frames ?? [] }
        let wanted = lists.map(Self.wanted)
        let modules = report.modules.map {
            LoadedModule(path: $0.path, buildID: $0.buildID, loadBase: UInt(truncatingIfNeeded: $0.loadBase.rawValue))
        }
        let places = wanted.flatMap { $0.map(\.place) }.filter { modules.indices.contains($0.module) }
        let resolution = symbolicator.resolve(places, in: modules, budget: budget)
        let names = Dictionary(zip(places, resolution.frames)) { first, _ in first }
        let rule = OwnRule(report, modules, ownCode)
        let amended = zip(lists, wanted).map { frames, wanted in
            let names = Dictionary(wanted.map { ($0.frame, names[$0.place]) }) { first, _ in first }
            return frames.indices.map { Self.amended(frames, $0, names[$0] ?? nil, rule) }
        }
        let (stacks, awaiting) = (
            Array(amended.prefix(report.stacks.count)), Array(amended.dropFirst(report.stacks.count))
        )
        let culprit = Self.culprit(of: report, stacks, awaiting)
        return Findings(
            amendment: .init(stacks: stacks, awaiting: awaiting, culprit: culprit),
            problems: resolution.problems
        )
    }

    private struct Wanted {
        var frame: Int
        var place: ModulePlace
    }

    private static func wanted(in frames: [StallReport.Frame]) -> [Wanted] {
        let innermost = frames.firstIndex { $0.kind == nil }
        return frames.indices.compactMap { index in
            let frame = frames[index]
            guard frame.kind != .inlined, frame.function == nil || frame.line == nil, let module = frame.module,
                let offset = frame.offset
            else { return nil }
            let kind: AddressKind =
                if frame.kind == .awaiting || frame.foundBy == .asyncContext {
                    .resumption
                } else if frame.foundBy == .programCounter || (frame.foundBy == nil && index == innermost) {
                    .exact
                } else {
                    .returnAddress
                }
            let place = UInt(truncatingIfNeeded: offset.rawValue)
            return Wanted(frame: index, place: .init(module: module, offset: place, kind: kind))
        }
    }

    private static func amended(
        _ frames: [StallReport.Frame],
        _ index: Int,
        _ name: SymbolicatedFrame?,
        _ rule: OwnRule
    ) -> ReportAmendment.Frame {
        var frame = frames[index]
        guard let name else { return .init(frame: frame) }
        let found = StallReport.Frame(name, own: rule.isOwn(name))
        if frame.symbol == nil, frame.function == nil {
            (frame.symbol, frame.function) = (found.symbol, found.function)
            (frame.functionOffset, frame.own) = (found.functionOffset, frame.own || found.own)
        }
        if frame.line == nil { (frame.file, frame.line, frame.column) = (found.file, found.line, found.column) }
        let hasInlined = index > 0 && frames[index - 1].kind == .inlined
        return .init(inlined: hasInlined ? [] : frame.inlinedCalls(name, isOwn: rule.isOwn), frame: frame)
    }

    /// The same one, at the place it then has and with what is known of it; or the first one, if there was none.
    private static func culprit(
        of report: StallReport,
        _ stacks: [[ReportAmendment.Frame]],
        _ awaiting: [[ReportAmendment.Frame]]
    ) -> StallReport.Culprit? {
        let named = ReportAmendment(stacks: stacks, awaiting: awaiting, culprit: nil).applied(to: report)
        guard var culprit = report.culprit ?? named.firstSuspect else { return nil }
        if report.culprit != nil {
            let lists = culprit.isAwaiting == true ? awaiting : stacks
            guard lists.indices.contains(culprit.stack), lists[culprit.stack].indices.contains(culprit.frame) else {
                return culprit
            }
            culprit.frame += lists[culprit.stack][...culprit.frame].reduce(0) { $0 + $1.inlined.count }
        }
        let suspect = Suspect(frame: culprit.frame, isAwaiting: culprit.isAwaiting == true)
        let frame = named.stacks[culprit.stack].frame(suspect)
        culprit.function = culprit.function ?? frame.function
        culprit.symbol = culprit.symbol ?? frame.symbol
        culprit.module = culprit.module ?? culprit.symbol.flatMap(Demangler.swiftModule)
        if culprit.line == nil { (culprit.file, culprit.line) = (frame.file, frame.line) }
        return culprit
    }
}

/// Which functions of a report are own: as the report itself has it for each Swift module, and by the rules for others.
private struct OwnRule {
    private let executable: String
    private let loaded: [LoadedModule]
    private let rules: OwnCode
    private let own: Set<String>

    init(_ report: StallReport, _ loaded: [LoadedModule], _ rules: OwnCode) {
        executable = report.process.executable ?? ""
        (self.loaded, self.rules) = (loaded, rules)
        let frames = report.stacks.flatMap { $0.frames + ($0.async?.frames ?? []) }.filter(\.own)
        own = Set(frames.compactMap { $0.symbol.flatMap(Demangler.swiftModule) })
    }

    func isOwn(_ frame: SymbolicatedFrame) -> Bool {
        guard let module = frame.swiftModule else { return false }
        let image = frame.moduleIndex.flatMap { loaded.indices.contains($0) ? loaded[$0] : nil }
        return own.contains(module) || rules.isOwn(frame, module: image, executable: executable)
    }
}

extension StallReport {
    /// The function to blame, where the report was written without any name: what is on most captures, and the innermost of those.
    fileprivate var firstSuspect: Culprit? {
        var counts: [String: Int] = [:]
        for stack in stacks where stack.role == .stalled {
            for symbol in Set(stack.suspects.compactMap { stack.frame($0).symbol }) {
                counts[symbol] = (counts[symbol] ?? 0).addingSaturated(stack.count)
            }
        }
        guard let most = counts.values.max() else { return nil }
        for (index, stack) in stacks.enumerated() where stack.role == .stalled {
            let suspect = stack.suspects.first { stack.frame($0).symbol.flatMap { counts[$0] } == most }
            if let suspect {
                return Culprit(stack: index, frame: suspect.frame, isAwaiting: suspect.isAwaiting ? true : nil)
            }
        }
        return nil
    }
}
