/// What is found out later about a report's frames, and what follows from that. Nothing is taken away but what was said for want of
/// names.
public struct ReportAmendment: Hashable, Sendable {
    /// What becomes of one frame.
    public struct Frame: Hashable, Sendable {
        /// Goes before it.
        public var inlined: [StallReport.Frame]
        /// Takes its place: the same, with more known of it.
        public var frame: StallReport.Frame

        /// Nothing is checked.
        public init(inlined: [StallReport.Frame] = [], frame: StallReport.Frame) {
            (self.inlined, self.frame) = (inlined, frame)
        }
    }

    /// What the report is about, decided anew with names.
    public struct Identity: Hashable, Sendable {
        /// By the names. The one before becomes an alias.
        public var fingerprint: Fingerprint
        /// Whether names are missing still.
        public var isProvisional: Bool
        /// The cause in a sentence.
        public var summary: String

        /// Nothing is checked.
        public init(fingerprint: Fingerprint, isProvisional: Bool, summary: String) {
            (self.fingerprint, self.isProvisional, self.summary) = (fingerprint, isProvisional, summary)
        }
    }

    /// For each of the report's stacks, one per frame.
    public var stacks: [[Frame]]
    /// For each of the report's stacks, one per awaiting function. May be shorter: the rest stays as it is.
    public var awaiting: [[Frame]]
    /// With the place it then has.
    public var culprit: StallReport.Culprit?
    /// Nil: as it was.
    public var identity: Identity?

    /// That they fit the report is not checked.
    public init(
        stacks: [[Frame]],
        awaiting: [[Frame]] = [],
        culprit: StallReport.Culprit?,
        identity: Identity? = nil
    ) {
        (self.stacks, self.awaiting, self.culprit, self.identity) = (stacks, awaiting, culprit, identity)
    }

    /// The report with it.
    public func applied(to report: StallReport) -> StallReport {
        var report = report
        for (index, frames) in zip(report.stacks.indices, stacks) {
            report.stacks[index].frames = frames.flatMap { $0.inlined + [$0.frame] }
            if let from = report.stacks[index].async?.from {
                report.stacks[index].async?.from = from &+ Self.inserted(in: frames, through: from)
            }
            if let after = report.stacks[index].leftOut?.after {
                report.stacks[index].leftOut?.after = after &+ Self.inserted(in: frames, through: after &- 1)
            }
        }
        for (index, frames) in zip(report.stacks.indices, awaiting) {
            report.stacks[index].async?.frames = frames.flatMap { $0.inlined + [$0.frame] }
        }
        report.culprit = culprit
        if let identity { Self.apply(identity, to: &report) }
        return report
    }

    private static func apply(_ identity: Identity, to report: inout StallReport) {
        if identity.fingerprint != report.fingerprint {
            let before = (report.aliases ?? []) + [report.fingerprint]
            report.aliases = before.filter { $0 != identity.fingerprint }
        }
        report.fingerprint = identity.fingerprint
        report.isProvisional = identity.isProvisional ? true : nil
        report.cause.summary = identity.summary
        let atCulprit = report.workersAtCulprit
        report.pool?.atCulprit = atCulprit
        report.monitor.symbolicationNote = report.missingNames
    }

    /// By how much what stands behind a frame moves.
    private static func inserted(in frames: [Frame], through last: Int) -> Int {
        zip(frames.indices, frames).reduce(0) { $0 + ($1.0 <= last ? $1.1.inlined.count : 0) }
    }
}

extension ReportDirectory {
    /// What became of a report that was to be amended.
    public enum AmendmentOutcome: Hashable, Sendable {
        /// Written, whole.
        case written
        /// There was nothing to add; the file was not touched.
        case unchanged
        /// The stall lasts, so its process will write the file again; it was not touched.
        case ongoing
        /// Somebody else wrote the file meanwhile; it was not touched.
        case overtaken
    }

    /// Adds to a finished report what was found out later. The file is replaced as a whole or not at all, and keeps what this version
    /// does not know of; the directory's limits are left alone.
    ///
    /// - Parameter amend: given the report; nil for nothing to add.
    public func amend(
        _ id: ULID,
        liveness: ProcessLiveness = ProcessLiveness(),
        by amend: (StallReport) -> ReportAmendment?
    ) throws(ReportError) -> AmendmentOutcome {
        let name = ReportFileName(.stall, id)
        let directory = try OpenDirectory(path: path)
        let before = directory.status(of: name.description)
        let report: StallReport = try ReportReader(path: path, liveness: liveness).load(name, in: directory)
        guard report.state != .ongoing else { return .ongoing }
        guard let amendment = amend(report), amendment.applied(to: report) != report else { return .unchanged }
        let bytes = try directory.openFile(name.description).readAll(limit: ReportReader.maximumFileSize)
        let amended = try amendment.bytes(of: bytes, readAs: report)
        guard amended.count <= ReportReader.maximumFileSize else { throw ReportError(.tooLarge, path: path) }
        // What is written is read back first: a report that could not be read any more would be lost.
        guard try StallReport(json: amended).id == id else { throw ReportError(.malformed, path: path) }
        guard directory.status(of: name.description) == before else { return .overtaken }
        try directory.replaceFile(name.description, with: amended, ownedAs: before)
        return .written
    }
}

extension ReportAmendment {
    /// The document's text with the amendment, and with all keys that this version does not know.
    fileprivate func bytes(of document: [UInt8], readAs report: StallReport) throws(ReportError) -> [UInt8] {
        try Self.refuseJunk(in: document, around: report)
        var tree = try JSONTree(document)
        let amended = applied(to: report)
        for (index, frames) in stacks.enumerated() {
            var stack = tree["stacks"][index]
            stack["frames"] = try Self.merged(frames, into: stack["frames"], of: index)
            if let leftOut = amended.stacks[index].leftOut {
                stack["left_out"] = stack["left_out"].merging(try JSONTree(encoding: leftOut))
            }
            if let async = amended.stacks[index].async { stack["async"]["from"] = .integer(Int64(async.from)) }
            tree["stacks"][index] = stack
        }
        for (index, frames) in awaiting.enumerated() where !frames.isEmpty {
            let old = tree["stacks"][index]["async"]["frames"]
            tree["stacks"][index]["async"]["frames"] = try Self.merged(frames, into: old, of: index)
        }
        if let culprit {
            let told = try JSONTree(encoding: culprit)
            tree["culprit"] = identity == nil ? tree["culprit"].merging(told) : told
        } else if identity != nil {
            tree.remove("culprit")
        }
        if identity != nil { try Self.tellIdentity(of: amended, in: &tree) }
        return try ReportJSON.encode(tree)
    }

    /// What this version does not know is kept, up to as much as it knows and ten thousand values more: a tree of a few megabytes of
    /// brackets would take gigabytes.
    private static func refuseJunk(in document: [UInt8], around report: StallReport) throws(ReportError) {
        let (all, known) = (JSONShape.values(in: document), JSONShape.values(in: try report.json()))
        guard all - known > known + 10_000 else { return }
        throw ReportError(.malformed, detail: "\(all - known) values in it are none of a report's")
    }

    private static func tellIdentity(of report: StallReport, in tree: inout JSONTree) throws(ReportError) {
        tree["fingerprint"] = .text(report.fingerprint.rawValue)
        tree["cause"]["summary"] = .text(report.cause.summary)
        tree.remove("provisional")
        if report.isProvisional == true { tree["provisional"] = .bool(true) }
        if let atCulprit = report.pool?.atCulprit { tree["pool"]["at_culprit"] = .integer(Int64(atCulprit)) }
        if let aliases = report.aliases { tree["aliases"] = .array(aliases.map { .text($0.rawValue) }) }
        tree["monitor"].remove("symbolication_note")
        if let note = report.monitor.symbolicationNote { tree["monitor"]["symbolication_note"] = .text(note) }
    }

    private static func merged(
        _ frames: [Frame],
        into tree: JSONTree,
        of stack: Int
    ) throws(ReportError) -> JSONTree {
        guard case .array(let old) = tree, old.count == frames.count else {
            throw ReportError(.malformed, detail: "stacks[\(stack)] has changed")
        }
        var new: [JSONTree] = []
        for (frame, known) in zip(frames, old) {
            for inlined in frame.inlined { new.append(try JSONTree(encoding: inlined)) }
            new.append(known.merging(try JSONTree(encoding: frame.frame)))
        }
        return .array(new)
    }
}
