public import StallReports

extension ReportDirectory {
    /// The result of amending a report.
    public enum AmendmentOutcome: Hashable, Sendable {
        /// Written completely.
        case written
        /// There was nothing to add; the file was not changed.
        case unchanged
        /// The stall is ongoing, so its process will write the file again; it was not changed.
        case ongoing
        /// Another process wrote the file in the meantime; it was not changed.
        case overtaken
    }

    /// Adds later findings to a finished report. The file is replaced as a whole or not at all, and keeps data that this
    /// version does not know; the directory's limits are not applied.
    ///
    /// - Parameter amend: Called with the report; returns nil if there is nothing to add.
    /// - Throws: Why the report cannot be read or written, `tooLarge` if it would be larger than a reader accepts. The file is unchanged then.
    public func amend(
        _ id: ULID,
        liveness: ProcessLiveness = ProcessLiveness(),
        by amend: (StallReport) -> ReportAmendment?
    ) throws(ReportError) -> AmendmentOutcome {
        let name = ReportFileName(.stall, id)
        let directory = try OpenDirectory(path: path)
        let before = directory.status(of: name.description)
        let report = try StoredDocuments(path: path, liveness: liveness).report(id, in: directory)
        guard report.state != .ongoing else { return .ongoing }
        guard let amendment = amend(report), amendment.applied(to: report) != report else { return .unchanged }
        let bytes = try directory.openFile(name.description).readAll(limit: ReportReader.maximumFileSize)
        let amended = try amendment.bytes(of: bytes, readAs: report)
        guard amended.count <= ReportReader.maximumFileSize else { throw ReportError(.tooLarge, path: path) }
        // The result is decoded first: a report that could not be read any more would be lost.
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
            let known = try JSONTree(encoding: culprit)
            tree["culprit"] = identity == nil ? tree["culprit"].merging(known) : known
        } else if identity != nil {
            tree.remove("culprit")
        }
        if identity != nil { try Self.writeIdentity(of: amended, in: &tree) }
        return try ReportJSON.encode(tree)
    }

    /// Unknown data is kept up to the amount of known data plus ten thousand values: a tree of a few megabytes of
    /// brackets would take gigabytes.
    private static func refuseJunk(in document: [UInt8], around report: StallReport) throws(ReportError) {
        let (all, known) = (JSONShape.values(in: document), JSONShape.values(in: try report.json()))
        guard all - known > known + 10_000 else { return }
        throw ReportError(.malformed, detail: "\(all - known) values in it are none of a report's")
    }

    private static func writeIdentity(of report: StallReport, in tree: inout JSONTree) throws(ReportError) {
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

/// Any JSON value, for changing a part of a document without losing the rest.
enum JSONTree: Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    /// A number above the largest signed integer.
    case unsigned(UInt64)
    case number(Double)
    case text(String)
    case array([JSONTree])
    case object([String: JSONTree])

    /// - Parameter document: JSON that was already read as a model, so its depth is limited.
    init(_ document: [UInt8]) throws(ReportError) {
        self = try ReportJSON.decode(document)
    }

    init(encoding value: some Encodable) throws(ReportError) {
        self = try JSONTree(ReportJSON.encode(value))
    }

    /// Null if there is no such member, or this is not an object. Setting has no effect if this is neither an object nor null.
    subscript(key: String) -> JSONTree {
        get { if case .object(let members) = self { members[key] ?? .null } else { .null } }
        set {
            switch self {
            case .object(var members):
                members[key] = newValue
                self = .object(members)
            case .null: self = .object([key: newValue])
            default: break
            }
        }
    }

    subscript(index: Int) -> JSONTree {
        get { if case .array(let elements) = self, elements.indices.contains(index) { elements[index] } else { .null } }
        set {
            guard case .array(var elements) = self, elements.indices.contains(index) else { return }
            elements[index] = newValue
            self = .array(elements)
        }
    }

    /// Removes the member, if there is one.
    mutating func remove(_ key: String) {
        guard case .object(var members) = self else { return }
        members[key] = nil
        self = .object(members)
    }

    /// This object with the other's members, which take precedence.
    func merging(_ other: JSONTree) -> JSONTree {
        guard case .object(let mine) = self, case .object(let others) = other else { return other }
        return .object(mine.merging(others) { $1 })
    }
}

extension JSONTree: Codable {
    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(UInt64.self) {
            self = .unsigned(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .text(value)
        } else if let value = try? container.decode([JSONTree].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSONTree].self))
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .unsigned(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .text(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }
}
