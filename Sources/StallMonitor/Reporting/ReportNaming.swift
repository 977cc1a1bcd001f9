import StallDiagnosis
package import StallReports
package import Symbolication

/// Finds names and lines for the frames of reports that lack them, by the build ids of their modules. Any thread may call.
package struct ReportNaming: Sendable {
    private let symbolicator: Symbolicator
    private let ownCode: OwnCode

    /// The result.
    package struct Findings: Sendable {
        /// Changes to the report's frames. Existing names are kept.
        package var amendment: ReportAmendment
        /// Why names or lines are still missing.
        package var problems: [SymbolProblem]
    }

    /// - Parameter ownCode: Decides for functions that have no name in the report. The others keep their classification.
    package init(symbolicator: Symbolicator, ownCode: OwnCode = OwnCode()) {
        (self.symbolicator, self.ownCode) = (symbolicator, ownCode)
    }

    /// Looks up every frame that lacks its function or its line.
    package func findings(for report: StallReport, budget: SymbolicationBudget = .tool) -> Findings {
        let lists = report.stacks.map(\.frames) + report.stacks.map { $0.async?.frames ?? [] }
        let modules = report.modules.map {
            LoadedModule(path: $0.path, buildID: $0.buildID, loadBase: UInt(truncatingIfNeeded: $0.loadBase.rawValue))
        }
        let places = lists.flatMap(Self.places).compactMap(\.self).filter { modules.indices.contains($0.module) }
        let resolution = symbolicator.resolve(places, in: modules, budget: budget)
        let names = Dictionary(zip(places, resolution.frames)) { first, _ in first }
        let rule = OwnRule(report, modules, ownCode)
        func amended(_ frames: [StallReport.Frame]) -> [ReportAmendment.Frame] {
            zip(frames.indices, Self.places(of: frames)).map { index, place in
                Self.amended(frames, index, place.flatMap { names[$0] }, rule)
            }
        }
        var amendment = ReportAmendment(
            stacks: report.stacks.map { amended($0.frames) },
            awaiting: report.stacks.map { amended($0.async?.frames ?? []) },
            culprit: nil
        )
        if Self.namesOwn(report, amendment) {
            Self.decide(report, &amendment)
        } else {
            amendment.culprit = Self.culprit(of: report, amendment)
        }
        return Findings(amendment: amendment, problems: resolution.problems)
    }

    /// Symbol files that were given but fit no module of any report so far.
    package var unusedFiles: [SymbolProblem] { symbolicator.unusedFiles() }

    /// Whether candidates for the culprit get names. Then culprit and fingerprint were chosen without these names.
    private static func namesOwn(_ report: StallReport, _ amendment: ReportAmendment) -> Bool {
        report.stacks.indices.contains { index in
            guard report.stacks[index].role == .stalled else { return false }
            let old = report.stacks[index].frames + (report.stacks[index].async?.frames ?? [])
            let new = amendment.stacks[index] + amendment.awaiting[index]
            return zip(old, new).contains { frame, found in
                guard frame.symbol == nil, frame.function == nil, found.frame.symbol != nil else { return false }
                return frame.own || found.frame.own
                    || report.modules.module(of: frame)?.path == report.process.executable
            }
        }
    }

    /// Chooses culprit and fingerprint again, with the names.
    private static func decide(_ report: StallReport, _ amendment: inout ReportAmendment) {
        let named = amendment.applied(to: report)
        let byTime = named.stacks.indices.filter { named.stacks[$0].role == .stalled }
            .sorted { named.stacks[$0].capturedAt < named.stacks[$1].capturedAt }
        let order = named.pool.map { PoolThreads.order(byTime, named.stacks, $0) } ?? byTime
        let samples = order.map { index in
            let stack = named.stacks[index]
            return CulpritSearch.Sample(
                stack: stack,
                span: .nanoseconds(max(1, stack.sampledNs ?? Int64(clamping: stack.count)))
            )
        }
        var frames = named.stacks.first?.callers(from: 0) ?? []
        if let blame = CulpritSearch(samples) {
            let stack = order[blame.sample]
            frames = blame.frames
            amendment.culprit = .init(named.stacks[stack].frame(blame.candidate), stack: stack, blame.candidate)
        }
        amendment.identity = .init(
            fingerprint: .make(
                kind: report.kind,
                fault: frames,
                modules: report.modules,
                executable: report.process.executable
            ),
            isProvisional: frames.contains(where: \.isNamelessOwn),
            summary: Self.summary(of: report, amendment.applied(to: report))
        )
    }

    /// The summary with the new names: the sentence about a pool's workers is made again, and the hottest function inserted.
    private static func summary(of report: StallReport, _ named: StallReport) -> String {
        let (summary, hottest) = (report.cause.summary, named.stacks.hottestFunction)
        guard let before = report.poolSentence, summary.hasPrefix(before) else {
            return Diagnosis.sentence(summary, hottest: hottest)
        }
        var named = named
        let atCulprit = named.workersAtCulprit
        named.pool?.atCulprit = atCulprit
        return (named.poolSentence ?? "")
            + Diagnosis.sentence(String(summary.dropFirst(before.count)), hottest: hottest)
    }

    /// Where each frame is looked up. Nil for one that has its function and its line, or that was inlined.
    private static func places(of frames: [StallReport.Frame]) -> [ModulePlace?] {
        let innermost = frames.firstIndex { $0.kind == nil }
        return frames.enumerated().map { index, frame in
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
            return ModulePlace(module: module, offset: UInt(truncatingIfNeeded: offset.rawValue), kind: kind)
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
            frame.functionOffset = found.functionOffset
            // It was own because it had no name. With a name it may turn out to be a library's.
            frame.own = found.symbol == nil ? frame.own : found.own
        }
        if frame.line == nil { (frame.file, frame.line, frame.column) = (found.file, found.line, found.column) }
        let hasInlined = index > 0 && frames[index - 1].kind == .inlined
        return .init(inlined: hasInlined ? [] : frame.inlinedCalls(name, isOwn: rule.isOwn), frame: frame)
    }

    /// The same culprit at its new index, with its new names.
    private static func culprit(of report: StallReport, _ amendment: ReportAmendment) -> StallReport.Culprit? {
        guard var culprit = report.culprit else { return nil }
        let lists = culprit.isAwaiting == true ? amendment.awaiting : amendment.stacks
        guard lists.indices.contains(culprit.stack), lists[culprit.stack].indices.contains(culprit.frame) else {
            return culprit
        }
        culprit.frame += lists[culprit.stack][...culprit.frame].reduce(0) { $0 + $1.inlined.count }
        let candidate = CulpritCandidate(frame: culprit.frame, isAwaiting: culprit.isAwaiting == true)
        let frame = amendment.applied(to: report).stacks[culprit.stack].frame(candidate)
        culprit.function = culprit.function ?? frame.function
        culprit.symbol = culprit.symbol ?? frame.symbol
        culprit.module = culprit.module ?? culprit.symbol.flatMap(Demangler.swiftModule)
        if culprit.line == nil { (culprit.file, culprit.line) = (frame.file, frame.line) }
        return culprit
    }
}

/// Which functions of a report are own: for each Swift module as in the report, for the others by the rules.
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
        let image = frame.moduleIndex.flatMap { loaded.indices.contains($0) ? loaded[$0] : nil }
        return frame.swiftModule.map(own.contains) == true || rules.isOwn(frame, module: image, executable: executable)
    }
}
