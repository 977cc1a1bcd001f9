import Glibc

/// The directory to which a monitor writes its reports. Several processes may share one.
///
/// A value without state: it holds no descriptor between calls, and a removed directory is created again at the next
/// write. All methods may be called on any thread; they wait for the disk, so do not call them on a watched loop.
public struct ReportDirectory: Hashable, Sendable {
    /// The path as passed in. A relative one is resolved against the working directory of each call.
    public let path: String
    /// The limits that each write of this value applies. Other writers to the directory apply their own.
    public let limits: Limits

    /// How much the directory may contain. What exceeds this is removed at the next write, oldest first; ongoing stalls and
    /// running processes' run records are never removed. Nothing of a monitor's own run is removed while it is within the
    /// limits itself: others' files are removed first.
    ///
    /// Only files written by monitors count: regular files with their names, of the writing user, up to
    /// 16 MiB. Nothing else is ever removed, and each user of a shared directory has separate limits.
    /// Files named by a future time are removed first.
    public struct Limits: Hashable, Sendable {
        /// Stall reports: 1 to 1,000,000. The file written last is kept, whatever the limits.
        public var reports: Int
        /// Run records: 1 to 1,000,000.
        public var runs: Int
        /// The disk usage of reports and run records together, in bytes: 1 to 1 TiB.
        public var bytes: Int

        /// 1000 reports, 100 runs and 256 MiB by default.
        public init(reports: Int = 1000, runs: Int = 100, bytes: Int = 256 << 20) {
            (self.reports, self.runs, self.bytes) = (reports, runs, bytes)
        }
    }

    /// Creates a value without accessing any file. Without a path it reads the environment: see ``defaultPath``.
    public init(path: String = ReportDirectory.defaultPath, limits: Limits = Limits()) {
        (self.path, self.limits) = (path, limits)
    }

    /// Creates the directory (mode 0700) if it is missing, and removes the incomplete files of processes that died.
    ///
    /// - Throws: Why the directory cannot be created or opened.
    public func prepare() throws(ReportError) {
        try OpenDirectory.create(path: path)
        try OpenDirectory(path: path).removeAbandonedDrafts()
    }

    /// Writes a report whole or not at all (mode 0600), replacing an earlier version of it. Then applies the limits
    /// as far as possible: a failure of that does not make the written report count as lost. If the file system is full, applies them
    /// first, and tries again if that has made room. Returns its size in bytes.
    ///
    /// - Throws: Why it cannot be written: `full`, `readOnly`, `permissionDenied` and others; `tooLarge` above 16 MiB.
    @discardableResult
    public func write(_ report: StallReport) throws(ReportError) -> Int {
        try write(report.json(), as: ReportFileName(.stall, report.id))
    }

    /// Writes a run record, as ``write(_:)-(StallReport)`` does.
    @discardableResult
    public func write(_ run: RunRecord) throws(ReportError) -> Int {
        try write(run.json(), as: ReportFileName(.run, run.id))
    }

    private func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) -> Int {
        var memory = WriterMemory()
        return try write(bytes, as: name, &memory).bytes
    }
}

extension ReportDirectory {
    /// The result of a write.
    package struct Written: Hashable, Sendable {
        /// The file's size.
        package var bytes: Int
        /// The problems of the directory.
        package var concerns: Set<Concern>

        package init(bytes: Int, concerns: Set<Concern>) { (self.bytes, self.concerns) = (bytes, concerns) }
    }

    /// Writes a document that was encoded elsewhere, then applies the limits.
    ///
    /// - Parameter memory: What the caller's run has written and read here before. This write is added.
    package func write(
        _ bytes: [UInt8],
        as name: ReportFileName,
        _ memory: inout WriterMemory
    ) throws(ReportError) -> Written {
        // A file that no reader would open is not written either.
        guard bytes.count <= StoredDocuments.maximumFileSize else { throw ReportError(.tooLarge, path: path) }
        do throws(ReportError) {
            try put(bytes, as: name)
        } catch let error where error.code == .full {
            // The limits may have been lowered since the last write.
            guard keepLimits(sparing: name, hasRoom: false, &memory).removed > 0 else { throw error }
            try put(bytes, as: name)
        }
        memory.own.insert(name)
        let isFilled = keepLimits(sparing: name, &memory).isFilled
        return Written(bytes: bytes.count, concerns: exposures.union(isFilled ? [.filled] : []))
    }

    private func put(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) {
        do throws(ReportError) {
            try OpenDirectory(path: path).replaceFile(name.description, with: bytes)
        } catch let error where [.missingDirectory, .missingFile].contains(error.code) {
            // The directory was removed, or the draft between its creation and its lock.
            try OpenDirectory.create(path: path)
            try OpenDirectory(path: path).replaceFile(name.description, with: bytes)
        }
    }

    /// The environment variable that names the report directory.
    public static let environmentVariable = "STALL_MONITOR_DIRECTORY"

    /// The default directory for writing and reading reports: `$STALL_MONITOR_DIRECTORY`, or otherwise `./stall-reports`.
    ///
    /// Reads the environment: call it before threads that change that.
    public static var defaultPath: String {
        guard let value = unsafe getenv(environmentVariable) else { return "./stall-reports" }
        let path = unsafe String(cString: value)
        return path.isEmpty ? "./stall-reports" : path
    }

    /// A problem of a report directory that does not prevent writing.
    ///
    /// ssh refuses a key that others can write to. A report directory with that problem is only reported, once: refusing it
    /// would lose the server's reports, and in a container it is the rule, not the exception, because volumes have mode 0777
    /// (an emptyDir) or belong to another user. What others can do there is limited: nothing in the directory can end or delay
    /// the monitor or make it write elsewhere, and it removes no report of its own because of their files. They can still
    /// remove or forge reports, which a person has to know.
    package enum Concern: String, Hashable, Sendable, CaseIterable {
        /// The path is a symbolic link: anyone who can change it decides where reports go. Links further up, as in /var/run,
        /// are the system's.
        case link
        /// Others may remove and replace its contents: it belongs to neither root nor us, or its group or everyone may write to
        /// it. A sticky directory like /tmp is accepted: others can add files, which do not count, and can remove none of ours.
        case openToOthers = "open_to_others"
        /// Files that this run did not write and may not remove exceed the limits.
        case filled

        /// The meaning, and the remedy.
        package func advice(for path: String) -> String {
            switch self {
            case .link:
                "\(path) is a symbolic link, and whoever can change it decides where reports go; "
                    + "name the directory it leads to."
            case .openToOthers:
                "\(path) belongs to another user, or others may write there, so they can remove and forge reports; "
                    + "take that right away (chmod go-w), or name a directory below it, which is then made with mode 0700."
            case .filled:
                "\(path) holds more than its limits allow that this run may not remove: files of other kinds or users, or "
                    + "of processes that live; find out who writes them, or give this server a directory of its own."
            }
        }
    }

    /// The present problems of the directory itself. Empty if it cannot be inspected: the next write then reports the reason.
    package var exposures: Set<Concern> {
        var concerns: Set<Concern> = []
        var link = stat()
        var plain = path
        while plain.utf8.count > 1, plain.hasSuffix("/") { plain.removeLast() }
        if unsafe lstat(plain, &link) == 0, link.st_mode & S_IFMT == S_IFLNK { concerns.insert(.link) }
        if let status = try? OpenDirectory(path: path).status() {
            let isWritable = status.mode & 0o022 != 0 && status.mode & 0o1000 == 0
            if isWritable || ![0, geteuid()].contains(status.owner) { concerns.insert(.openToOthers) }
        }
        return concerns
    }
}

/// The name of a file of the store: `stall-ULID.json` or `run-ULID.json`. Sorted by age.
public struct ReportFileName: Hashable, Sendable {
    /// The kind of document in the file. The raw value is the name's first part.
    public enum Content: String, Sendable {
        case stall, run
    }

    /// According to the name: the file's contents may differ.
    public let content: Content
    /// A file whose document has another id is rejected as `malformed`.
    public let id: ULID

    /// The name under which the store keeps the document with this id.
    public init(_ content: Content, _ id: ULID) { (self.content, self.id) = (content, id) }

    /// Nil for any other name.
    public init?(_ text: String) {
        guard let hyphen = text.utf8.firstIndex(of: UInt8(ascii: "-")),
            let content = Content(rawValue: String(text[..<hyphen])),
            let id = ULID(String(Substring(text.utf8[hyphen...].dropFirst().dropLast(".json".utf8.count))))
        else { return nil }
        self.init(content, id)
        // Rejects other characters at the skipped positions.
        guard description == text else { return nil }
    }
}

extension ReportFileName: CustomStringConvertible {
    /// `stall-01J8Z3V5Q6W7X8Y9Z0A1B2C3D4.json`, without a directory.
    public var description: String { "\(content.rawValue)-\(id).json" }
}

extension ReportFileName: Comparable {
    /// The older one is less; for the same id, the run.
    public static func < (left: ReportFileName, right: ReportFileName) -> Bool {
        left.id == right.id ? left.content.rawValue < right.content.rawValue : left.id < right.id
    }
}

/// A destination of reports: a directory, or anything else that accepts them. Queueing, retries and the bound on memory are the
/// writer's responsibility, and the same for all sinks.
///
/// For the writer's thread only, which may block in it.
package protocol ReportSink: Sendable {
    /// Its name in messages.
    var name: String { get }

    /// Prepares it for writes.
    ///
    /// - Parameter closing: Also closes the reports that processes left unfinished when they died.
    /// - Returns: The problems that it has, although it accepts reports.
    mutating func prepare(closing: Bool) throws(ReportError) -> Set<ReportDirectory.Concern>

    /// Sets how much it may contain from now on. A sink without limits ignores this.
    mutating func adopt(_ limits: ReportDirectory.Limits)

    /// Writes a document whole or not at all, replacing an earlier version of it.
    mutating func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) -> ReportDirectory.Written
}

extension ReportSink {
    package mutating func adopt(_ limits: ReportDirectory.Limits) {}
}

/// A directory, with the data that is kept about it between writes.
package struct DirectorySink: ReportSink {
    private var directory: ReportDirectory
    private var memory = WriterMemory()
    /// As of the last write.
    private var isFilled = false

    package init(_ directory: ReportDirectory) { self.directory = directory }

    package var name: String { directory.path.isEmpty ? "''" : directory.path }

    package mutating func adopt(_ limits: ReportDirectory.Limits) {
        directory = ReportDirectory(path: directory.path, limits: limits)
    }

    package mutating func prepare(closing: Bool) throws(ReportError) -> Set<ReportDirectory.Concern> {
        try directory.prepare()
        if closing { try directory.closeTerminated() }
        return directory.exposures.union(isFilled ? [.filled] : [])
    }

    package mutating func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError)
        -> ReportDirectory.Written
    {
        let written = try directory.write(bytes, as: name, &memory)
        isFilled = written.concerns.contains(.filled)
        return written
    }
}
