import RunLoopKit
import StallDetection
import StallReports

/// What the writer does next, and what it still has to write. A function of its inputs and of the disk's answers: no clock, no
/// thread, no disk.
///
/// Each document is tried as soon as it is given. Documents that the disk refuses are tried again in rounds, at growing
/// intervals. After the first success all the others are tried at once.
struct WriteQueue: Sendable {
    enum Step: Hashable, Sendable {
        /// Prepare the directory. `closing`: also close the reports that dead processes left open.
        case prepare(closing: Bool)
        case write(PendingDocument)
        case wait(until: MonotonicInstant?)
        case end
    }

    private enum Preparation: Hashable, Sendable {
        case none
        case due(closing: Bool)
    }

    private(set) var documents: PendingDocuments
    /// Why the disk refused last. Nil when nothing is waiting any more.
    private(set) var problem: ReportError?
    private(set) var failures = 0
    private(set) var isClosed = false
    /// How long after a failure the disk is tried again. So a process whose reports wait for a disk wakes once a minute.
    private var retry = DoublingInterval(from: .seconds(1), upTo: .seconds(60))
    private var retryAt: MonotonicInstant?
    private var round = 0
    private var preparation = Preparation.none
    private var preparedIn: Int?
    private var inFlight: PendingDocument?
    /// Whether a success in this round has already caused the others to be tried.
    private var hasFollowed = false

    init(limits: StallMonitor.MemoryLimits) {
        documents = PendingDocuments(limits: limits)
    }

    mutating func put(_ document: PendingDocument) {
        documents.put(document, sparing: inFlight)
    }

    mutating func prepare() {
        preparation = .due(closing: true)
    }

    /// Tries everything that is waiting once more, now.
    mutating func retryNow() {
        beginRound()
    }

    /// Ends after everything that is waiting was tried once more.
    mutating func close() {
        guard !isClosed else { return }
        isClosed = true
        beginRound()
    }

    /// Whether a document is waiting that was not tried yet.
    var hasUntried: Bool {
        inFlight != nil || documents.untried(in: round) != nil || (preparation != .none && preparedIn != round)
    }

    mutating func next(at now: MonotonicInstant) -> Step {
        if let due = retryAt, now >= due { beginRound() }
        if case .due(let closing) = preparation, preparedIn != round { return .prepare(closing: closing) }
        if let document = documents.untried(in: round) {
            inFlight = document
            return .write(document)
        }
        return isClosed ? .end : .wait(until: retryAt)
    }

    mutating func prepared() {
        preparation = .none
        if documents.isEmpty { mend() }
    }

    mutating func prepareFailed(_ error: ReportError, at now: MonotonicInstant) {
        preparedIn = round
        failures += 1
        fail(error, at: now)
    }

    mutating func wrote(_ document: PendingDocument) {
        inFlight = nil
        documents.remove(document)
        guard problem != nil else { return }
        if !hasFollowed {
            // This also removes drafts that could not be removed before.
            if preparation == .none { preparation = .due(closing: false) }
            beginRound()
            hasFollowed = true
        }
        if documents.isEmpty, preparation == .none { mend() }
    }

    mutating func writeFailed(_ document: PendingDocument, _ error: ReportError, at now: MonotonicInstant) {
        inFlight = nil
        failures += 1
        guard error.code != .tooLarge else { return documents.lose(document) }
        // A full disk may still have room for a smaller report.
        documents.note(document, triedIn: round, all: error.code != .full)
        fail(error, at: now)
    }

    private mutating func fail(_ error: ReportError, at now: MonotonicInstant) {
        problem = error
        if retryAt == nil { retryAt = now + retry.next() }
    }

    private mutating func mend() {
        problem = nil
        retryAt = nil
        retry.reset()
    }

    private mutating func beginRound() {
        round += 1
        retryAt = nil
        hasFollowed = false
    }
}

extension WriteQueue.Step {
    /// How long it may take before it counts as hanging. Nil for steps that use no disk.
    var patience: Duration? {
        switch self {
        case .prepare: ReportWriter.prepareTimeout
        case .write: ReportWriter.writeTimeout
        case .wait, .end: nil
        }
    }
}

extension WriteQueue {
    /// Notes how a step has ended.
    mutating func note<Written>(
        _ result: Result<Written, ReportError>,
        of step: Step,
        at now: MonotonicInstant
    ) {
        switch (step, result) {
        case (.prepare, .success): prepared()
        case (.prepare, .failure(let error)): prepareFailed(error, at: now)
        case (.write(let document), .success): wrote(document)
        case (.write(let document), .failure(let error)): writeFailed(document, error, at: now)
        case (.wait, _), (.end, _): break
        }
    }
}

/// The next content of a file.
struct PendingDocument: Hashable, Sendable {
    let name: ReportFileName
    let bytes: [UInt8]
    /// Whether there will be no later version.
    let isFinal: Bool
    /// Distinguishes it from other versions of the same file in a queue.
    fileprivate(set) var version = 0
    /// The round in which it was last tried.
    fileprivate(set) var triedIn: Int?

    init(name: ReportFileName, bytes: [UInt8], isFinal: Bool) {
        (self.name, self.bytes, self.isFinal) = (name, bytes, isFinal)
    }

    var isReport: Bool { name.content == .stall }
}

/// Documents that wait for the disk, one version of each file. Bounded in number and bytes: the newest are kept. Pure.
struct PendingDocuments: Sendable {
    private var documents: [PendingDocument] = []
    private let limits: StallMonitor.MemoryLimits
    private var versions = 0
    private var bytes = 0
    private(set) var peakBytes = 0
    /// Dropped reports that no later version can replace.
    private(set) var lost = 0
    /// Dropped reports of ongoing stalls. They count as lost until a later version arrives. At most one for each watched loop.
    private var lostUnfinished: Set<ReportFileName> = []

    init(limits: StallMonitor.MemoryLimits) {
        self.limits = limits
    }

    var waitingReports: Int { documents.count(where: \.isReport) }
    var waitingBytes: Int { bytes }
    var isEmpty: Bool { documents.isEmpty }

    /// - Parameter inFlight: The document that is being written. Its result is not known yet.
    mutating func put(_ document: PendingDocument, sparing inFlight: PendingDocument?) {
        take(document.name)
        if lostUnfinished.remove(document.name) != nil { lost -= 1 }
        versions += 1
        var document = document
        document.version = versions
        documents.append(document)
        bytes += document.bytes.count
        while exceedsLimits, let index = evictable(sparing: [document.name, inFlight?.name].compactMap { $0 }) {
            lose(documents[index])
        }
        peakBytes = max(peakBytes, bytes)
    }

    /// The newest document that was not tried in `round`. Reports come before the run record, which counts them.
    func untried(in round: Int) -> PendingDocument? {
        documents.last { $0.isReport && $0.triedIn != round } ?? documents.last { $0.triedIn != round }
    }

    /// Removes a document that is on disk. A later version stays.
    mutating func remove(_ document: PendingDocument) {
        guard documents.contains(where: { $0.version == document.version }) else { return }
        take(document.name)
    }

    /// Notes that the disk refused it. `all`: it would refuse the others, too.
    mutating func note(_ document: PendingDocument, triedIn round: Int, all: Bool) {
        for index in documents.indices where all || documents[index].version == document.version {
            documents[index].triedIn = round
        }
    }

    /// Gives up a document that cannot be written, now or later.
    mutating func lose(_ document: PendingDocument) {
        guard documents.contains(where: { $0.version == document.version }) else { return }
        take(document.name)
        guard document.isReport else { return }
        lost += 1
        if !document.isFinal { lostUnfinished.insert(document.name) }
    }

    private var exceedsLimits: Bool { waitingReports > limits.reports || bytes > limits.bytes }

    /// The oldest finished report; otherwise the oldest report.
    private func evictable(sparing names: [ReportFileName]) -> Int? {
        let candidates = documents.indices.filter { documents[$0].isReport && !names.contains(documents[$0].name) }
        return candidates.first { documents[$0].isFinal } ?? candidates.first
    }

    private mutating func take(_ name: ReportFileName) {
        guard let index = documents.firstIndex(where: { $0.name == name }) else { return }
        bytes -= documents.remove(at: index).bytes.count
    }
}
