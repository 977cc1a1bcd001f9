public import StallReports

/// What a store keeps of a run in addition to its run record. Names that end in `Ns` are nanoseconds; moments count from 1970.
public struct ArrivedRun: Sendable {
    /// The team that sent it.
    public let team: String
    /// The run's id, which is unique within a team.
    public let id: ULID
    /// When the record was written. A later record of the same run replaces an earlier one, and nothing but its end replaces its end.
    public private(set) var updatedNs: Int64
    /// When the monitor started.
    public let startedNs: Int64
    /// The total watched time of all its loops, saturated.
    public let watchedNs: Int64
    /// For a watcher of other processes: this time by the services that it watched, a thousand at most. Otherwise empty: it is all of the run's
    /// own service.
    public let watchedServices: [WatchedService]
    /// The service's name. Empty if the process gave none.
    public let service: String
    /// The service's version. Empty if the process gave none.
    public let release: String
    /// The host's name.
    public let host: String
    /// Whether the monitor was running when the record was written.
    public let isRunning: Bool
    /// Stalls that were counted without a report, one entry for each fault and service. Those with impossible times are left out.
    public let counted: [Counted]
    /// The run record, compressed: see ``ArrivedDocument/unpacked(_:)``.
    public let body: [UInt8]

    /// How long a watcher has watched one service.
    public struct WatchedService: Hashable, Sendable {
        /// The service's name. Empty if that is not known.
        public let service: String
        /// The time of all its loops, in nanoseconds, saturated.
        public let watchedNs: Int64
    }

    /// The stalls of one fault and service that a run counted without a report.
    public struct Counted: Sendable {
        /// The fault's fingerprint.
        public let fingerprint: String
        /// The service's name: the run's own, or for a watcher of other processes the one that it watched. Empty if that is not known.
        public let service: String
        /// The service's version. Empty for a watcher, which does not know the versions of what it watches.
        public let release: String
        /// The number of stalls, at most a billion.
        public let count: Int64
        /// Their total length, at most 366 days.
        public let totalNs: Int64
        /// The length of the longest.
        public let longestNs: Int64
        /// When the first of them began.
        public let firstNs: Int64
        /// When the last of them began.
        public let lastNs: Int64
    }
}

extension ArrivedRun {
    init(_ run: RunRecord, _ json: [UInt8], _ team: String, _ now: Timestamp) throws(ReportError) {
        guard run.watched.allSatisfy({ $0.watchedNs >= 0 }) else {
            throw ReportError(.malformed, detail: "a watched time is negative")
        }
        self.team = team
        id = run.id
        startedNs = try ArrivalBounds.moment(run.startedAt, now)
        updatedNs = max(startedNs, try ArrivalBounds.moment(run.updatedAt, now))
        // Queries relate it to the run's time, so no loop's time may be cut to a length. They add up numbers with fractions.
        watchedNs = run.watched.map(\.watchedNs).saturatingSum()
        watchedServices = run.targets == nil ? [] : Self.services(run.watched)
        (service, release) = (ArrivalBounds.name(run.service?.name), ArrivalBounds.name(run.service?.version))
        host = ArrivalBounds.name(run.host.name)
        isRunning = run.state == .running
        counted = Self.counted(run, now)
        body = try ArrivalBounds.packed(json)
    }

    /// The stalls of each fault and service. A record has an entry for each loop that a fault stalled, and a watcher's loops are of several
    /// services.
    private static func counted(_ run: RunRecord, _ now: Timestamp) -> [Counted] {
        let isWatcher = run.targets != nil
        let own = (service: ArrivalBounds.name(run.service?.name), release: ArrivalBounds.name(run.service?.version))
        var faults: [CountedFault: StallReport.Repeats] = [:]
        for fault in (run.repeated ?? []).prefix(1000) {
            let key = CountedFault(
                fingerprint: fault.fingerprint,
                service: isWatcher ? ArrivalBounds.name(fault.service) : own.service
            )
            faults[key] = faults[key]?.joined(by: fault.repeats) ?? fault.repeats
        }
        return faults.compactMap { Counted($0, release: isWatcher ? "" : own.release, $1, now) }
    }

    private static func services(_ watched: [RunRecord.Watched]) -> [WatchedService] {
        var times: [String: Int64] = [:]
        for loop in watched {
            let service = ArrivalBounds.name(loop.service)
            guard times[service] != nil || times.count < 1000 else { continue }
            times[service] = (times[service] ?? 0).addingSaturated(loop.watchedNs)
        }
        return times.sorted { $0.key < $1.key }.map { WatchedService(service: $0.key, watchedNs: $0.value) }
    }

    fileprivate struct CountedFault: Hashable {
        var fingerprint: Fingerprint
        var service: String
    }

    /// What a store knows of a run.
    package typealias Known = (updatedNs: Int64, watchedNs: Int64, isRunning: Bool)

    /// The record as a store keeps it. Nil if it changes nothing.
    ///
    /// The host's clock may have been set back: then the end of a run, and a record in which more was watched, replace what is known also if
    /// their time is earlier. They are kept with a later time, so that no earlier record replaces them.
    ///
    /// - Parameter again: Whether one that is stored already is written once more.
    package func replacing(_ known: Known?, again: Bool = false) -> ArrivedRun? {
        guard let known else { return self }
        // It was written before the end, by a clock that was set back since.
        if isRunning, !known.isRunning { return nil }
        guard updatedNs <= known.updatedNs else { return self }
        var run = self
        run.updatedNs = known.updatedNs
        if isRunning != known.isRunning || watchedNs > known.watchedNs {
            run.updatedNs += 1
            return run
        }
        return again && (!isRunning || watchedNs == known.watchedNs) ? run : nil
    }
}

extension ArrivedRun.Counted {
    /// Nil if the clock was wrong when one of these stalls began: all later records of the run have these times, too.
    fileprivate init?(
        _ fault: ArrivedRun.CountedFault,
        release: String,
        _ repeats: StallReport.Repeats,
        _ now: Timestamp
    ) {
        guard let firstNs = try? ArrivalBounds.moment(repeats.firstAt, now),
            let lastNs = try? ArrivalBounds.moment(repeats.lastAt, now)
        else { return nil }
        fingerprint = fault.fingerprint.rawValue
        (service, self.release) = (fault.service, release)
        count = ArrivalBounds.count(repeats.count)
        totalNs = ArrivalBounds.length(repeats.totalNs)
        longestNs = ArrivalBounds.length(repeats.longestNs)
        (self.firstNs, self.lastNs) = (firstNs, lastNs)
    }
}
