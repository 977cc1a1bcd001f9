import RunLoopKit
import StallReports

/// What the writer does next, and what it still owes. A function of what it was given and of how the disk answered: no clock, no
/// thread, no disk.
///
/// Each document is tried as soon as it is given. What the disk refuses stays and is tried again in rounds, at growing distances; the
/// first success lets everything else follow at once.
struct WriteQueue: Sendable {
    enum Step: Hashable, Sendable {
        /// Make the directory ready. `closing`: also close the reports that dead processes left open.
        case tidy(closing: Bool)
        case write(PendingDocument)
        case wait(until: MonotonicInstant?)
        case end
    }

    private enum Tidying: Hashable, Sendable {
        case none
        case due(closing: Bool)
    }

    private(set) var documents: PendingDocuments
    /// Why the disk refused last. Nil again when nothing waits any more.
    private(set) var problem: ReportError?
    private(set) var failures = 0
    private(set) var isClosed = false
    private var retry = RetrySchedule()
    private var retryAt: MonotonicInstant?
    private var round = 0
    private var tidying = Tidying.none
    private var tidiedIn: Int?
    private var inFlight: PendingDocument?
    /// Whether a success in this round has already let the others follow.
    private var hasFollowed = false

    init(limits: StallMonitor.MemoryLimits) {
        documents = PendingDocuments(limits: limits)
    }

    mutating func put(_ document: PendingDocument) {
        documents.put(document, sparing: inFlight)
    }

    mutating func tidy() {
        tidying = .due(closing: true)
    }

    /// Everything that waits is tried once more, now.
    mutating func retryNow() {
        beginRound()
    }

    /// After what is there was tried once more comes the end.
    mutating func close() {
        guard !isClosed else { return }
        isClosed = true
        beginRound()
    }

    /// Whether something waits that was not yet tried.
    var hasUntried: Bool {
        inFlight != nil || documents.untried(in: round) != nil || (tidying != .none && tidiedIn != round)
    }

    mutating func next(at now: MonotonicInstant) -> Step {
        if let due = retryAt, now >= due { beginRound() }
        if case .due(let closing) = tidying, tidiedIn != round { return .tidy(closing: closing) }
        if let document = documents.untried(in: round) {
            inFlight = document
            return .write(document)
        }
        return isClosed ? .end : .wait(until: retryAt)
    }

    mutating func tidied() {
        tidying = .none
        if documents.isEmpty { mend() }
    }

    mutating func tidyFailed(_ error: ReportError, at now: MonotonicInstant) {
        tidiedIn = round
        failures += 1
        fail(error, at: now)
    }

    mutating func wrote(_ document: PendingDocument) {
        inFlight = nil
        documents.remove(document)
        guard problem != nil else { return }
        if !hasFollowed {
            // Drafts that could not be removed meanwhile go, too.
            if tidying == .none { tidying = .due(closing: false) }
            beginRound()
            hasFollowed = true
        }
        if documents.isEmpty, tidying == .none { mend() }
    }

    mutating func writeFailed(_ document: PendingDocument, _ error: ReportError, at now: MonotonicInstant) {
        inFlight = nil
        failures += 1
        guard error.code != .tooLarge else { return documents.lose(document) }
        // Of a full disk a smaller report may still find room.
        documents.note(document, triedIn: round, all: error.code != .full)
        fail(error, at: now)
    }

    private mutating func fail(_ error: ReportError, at now: MonotonicInstant) {
        problem = error
        if retryAt == nil { retryAt = retry.next(after: now) }
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

/// When a disk that refused is asked again: a second later, then at double the distance, a minute at most. A process whose reports
/// wait for a disk wakes once a minute for it, and not at all when nothing waits. Pure.
struct RetrySchedule: Hashable, Sendable {
    private static let first = Duration.seconds(1)
    private static let longest = Duration.seconds(60)
    private var distance = RetrySchedule.first

    mutating func next(after now: MonotonicInstant) -> MonotonicInstant {
        defer { distance = min(distance * 2, Self.longest) }
        return now + distance
    }

    mutating func reset() {
        distance = Self.first
    }
}
