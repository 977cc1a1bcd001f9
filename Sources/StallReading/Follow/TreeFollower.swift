import Glibc
package import StallReports

/// Follows all report directories at or below some paths, including those created later. Each is followed as by
/// ``ReportFollower``. If its path leads to another directory, such as after a change of a link, that one is followed.
///
/// One that was found below a path, and is gone, takes no descriptors any more. If it is created again, it is found again.
///
/// For one thread at a time, which owns it.
package struct TreeFollower: ~Copyable {
    package indirect enum Event: Sendable {
        case event(ReportFollower.Event, directory: String)
        /// A directory that cannot be followed or searched. Each is reported once, and tried again if that may pass.
        case failure(ReportError)
    }

    /// Ends a wait from another thread.
    package let cancellation: Cancellation

    private let given: [String]
    private var followers: [Follower] = []
    private var failures: [ReportError] = []
    /// Directories that are followed already, or cannot be followed.
    private var tried: Set<String> = []
    /// Directories of which a failure was reported.
    private var reported: Set<String> = []
    private var nextSearch = ContinuousClock.now
    /// When it began, if files that existed then are skipped and a directory could not be searched or followed at first: of what is found
    /// later, files that were written before are skipped, too. Otherwise nil: all that is found later is returned.
    private var start: Timestamp?
    /// The follower that is asked first, and how many consecutive events came from it.
    private var position = 0
    private var inARow = 0

    /// The time between two searches for new directories. A search of a directory with very many files is expensive: on average, searches
    /// use a thousandth of a processor at most. One that only waits, for the disk or for a processor, must not put off the next for as
    /// long: searches take a tenth of the time at most. And if the process or the machine stood still meanwhile, ten minutes are enough.
    ///
    /// - Parameters:
    ///   - elapsed: How long the last one took.
    ///   - worked: The processor time that it used.
    package static func pause(afterSearchOf elapsed: Duration, worked: Duration) -> Duration {
        max(.seconds(3), min(elapsed * 10, .seconds(600)), worked * 1000)
    }

    /// The largest number of events of one directory before the next has its turn.
    private static let turn = 1000

    /// - Parameter includesPast: If false, files that exist at the start are skipped, as by ``ReportFollower``.
    /// - Throws: If no descriptor is left, or none of the paths can become a report directory.
    package init(_ paths: [String], includesPast: Bool = true, cancellation: Cancellation) throws(ReportError) {
        self.init(given: paths, cancellation)
        let now = Timestamp.now()
        search(includesPast: includesPast)
        if !includesPast, failures.contains(where: { $0.code == .io }) { start = now }
        if followers.isEmpty, let first = failures.first { throw first }
    }

    /// An initializer that initializes the properties itself cannot call a mutating method in Swift 6.2.
    private init(given: [String], _ cancellation: Cancellation) {
        (self.given, self.cancellation) = (given, cancellation)
    }

    /// The directories that are followed.
    package var directories: [String] { followers.map(\.path) }

    /// Adds a stall that was read elsewhere: while it is ongoing, its growth and its process's death are returned as events.
    package mutating func note(_ report: StallReport) {
        let name = ReportFileName(.stall, report.id).description
        followers.first { unsafe access("\($0.path)/\(name)", F_OK) == 0 }?.follower.note(report)
    }

    /// Waits for the next event.
    ///
    /// - Returns: Nil after the timeout.
    /// - Throws: `.cancelled` after a cancellation.
    package mutating func next(timeout: Duration) throws(ReportError) -> Event? {
        let deadline = ContinuousClock.now + timeout
        // Checked here, because with enough events there is never a wait.
        if cancellation.isCancelled { throw ReportError(.cancelled) }
        while true {
            if ContinuousClock.now >= nextSearch { search() }
            if let failure = failures.popLast() { return .failure(failure) }
            if let event = nextKnown() { return event }
            if !failures.isEmpty { continue }
            guard ContinuousClock.now < deadline else { return nil }
            try wait(until: deadline)
        }
    }

    /// An event that is available without waiting.
    private mutating func nextKnown() -> Event? {
        // A follower that has had its turn comes again after the others.
        for _ in 0...followers.count where !followers.isEmpty {
            let next = followers[position]
            if inARow < Self.turn, let event = event(of: next) {
                inARow += 1
                return .event(event, directory: next.path)
            }
            position = (position + 1) % followers.count
            inARow = 0
        }
        return nil
    }

    /// Nil if there is none, or if the directory cannot be watched any more: the next searches try to watch it again.
    private mutating func event(of next: Follower) -> ReportFollower.Event? {
        do throws(ReportError) {
            let event = try next.follower.next(timeout: .zero)
            switch event {
            case .directoryAppeared:
                reported.remove(next.path)
                next.isGone = false
            case .directoryGone: next.isGone = true
            default: break
            }
            return event
        } catch {
            note(error, next.path)
            return nil
        }
    }

    private mutating func note(_ error: ReportError, _ directory: String) {
        if reported.insert(directory).inserted { failures.append(error.path == nil ? error.at(directory) : error) }
    }

    /// Searches for new directories, and follows them.
    private mutating func search(includesPast: Bool = true) {
        let (began, workedBefore) = (ContinuousClock.now, Self.processorTime)
        forgetGone()
        checkPaths()
        for path in given {
            let tree = ReportTree(path)
            for directory in tree.directories { follow(directory, includesPast: includesPast) }
            failures += tree.failures.filter { $0.path.map { reported.insert($0).inserted } ?? true }
        }
        let end = ContinuousClock.now
        nextSearch = end + Self.pause(afterSearchOf: end - began, worked: Self.processorTime - workedBefore)
    }

    /// That of the calling thread.
    private static var processorTime: Duration {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    /// Follows a directory unless that was tried before.
    private mutating func follow(_ directory: String, includesPast: Bool) {
        let names: Set = [directory, ReportTree.resolved(directory)]
        guard tried.isDisjoint(with: names) else { return }
        tried.formUnion(names)
        do throws(ReportError) {
            followers.append(try Follower(directory, names, includesPast: includesPast && start == nil, from: start))
        } catch {
            // No descriptor is left, or the disk has failed: the next search tries again.
            if error.code == .io { tried.subtract(names) }
            note(error, directory)
        }
    }

    /// Ends following directories that are gone, as far as another search finds them again with all that is in them. Each that comes and goes
    /// would keep its descriptors otherwise, of which there are few.
    private mutating func forgetGone() {
        let gone = followers.filter { next in
            guard next.isGone, next.includesPast, !given.contains(next.path) else { return false }
            return unsafe access(next.path, F_OK) != 0
        }
        guard !gone.isEmpty else { return }
        for next in gone { tried.subtract(next.names) }
        followers.removeAll { next in gone.contains { $0 === next } }
        (position, inARow) = (0, 0)
    }

    /// Notices paths that lead to another directory now. One that is followed by its own name already is not followed twice.
    private mutating func checkPaths() {
        let places = followers.map { ReportTree.resolved($0.path) }
        let counts = Dictionary(places.map { ($0, 1) }, uniquingKeysWith: +)
        for (next, place) in zip(followers, places) where counts[place] == 1 {
            do throws(ReportError) {
                try next.follower.checkPath()
            } catch {
                note(error, next.path)
            }
        }
    }

    /// Returns when there may be an event, at the deadline, when a search is due, or earlier, which is harmless.
    private func wait(until deadline: ContinuousClock.Instant) throws(ReportError) {
        var descriptors = ([cancellation.readEnd] + followers.map { $0.follower.descriptor }).map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        let wake = followers.compactMap { $0.follower.nextCheck }.reduce(min(deadline, nextSearch), min)
        let limit = Int32(clamping: ContinuousClock.now.duration(to: wake).milliseconds)
        try systemCall(path: nil) { unsafe poll(&descriptors, nfds_t(descriptors.count), limit) }
        if descriptors[0].revents != 0 { throw ReportError(.cancelled) }
    }
}

/// One directory. A class, because an array cannot contain a noncopyable follower.
private final class Follower {
    let path: String
    /// Its path as found, and without links.
    let names: Set<String>
    /// Whether files that existed at the start are returned.
    let includesPast: Bool
    /// Whether it was reported that the directory is gone.
    var isGone = false
    var follower: ReportFollower

    init(_ path: String, _ names: Set<String>, includesPast: Bool, from start: Timestamp?) throws(ReportError) {
        (self.path, self.names, self.includesPast) = (path, names, includesPast)
        follower = try ReportFollower(path: path, includesPast: includesPast, from: start)
    }
}
