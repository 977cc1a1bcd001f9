import StallReports

/// A watched loop, or all loops of a service whose labels differ in their numbers only: threads are numbered.
package struct WatchedPlace: Codable, Hashable, Sendable {
    /// How many are kept of a fault.
    static let most = 8

    /// Nil if it is not known. The same for the others.
    let service: String?
    let label: String?
    let type: WatchedType?

    init(service: String?, label: String?, type: WatchedType?) {
        (self.service, self.type) = (service, type)
        self.label = label?.replacing(/[0-9]+/, with: "*")
    }

    init(_ occurrence: Occurrence) {
        self.init(service: occurrence.service, label: occurrence.label, type: occurrence.type)
    }

    /// How long a place was watched.
    package struct Time: Codable, Hashable, Sendable {
        let place: WatchedPlace
        let watchedNs: Int64

        private enum CodingKeys: String, CodingKey {
            case place
            case watchedNs = "watched_ns"
        }
    }

    /// The places that were watched.
    static func watched(in runs: [RunRecord]) -> Set<WatchedPlace> { Set(sums(in: runs).keys) }

    /// The same with their times. Nil for more than a file is to hold.
    static func times(in runs: [RunRecord]) -> [Time]? {
        let sums = sums(in: runs)
        guard sums.count <= 1000 else { return nil }
        return sums.map { Time(place: $0, watchedNs: $1) }.sorted { ($0.place.order) < ($1.place.order) }
    }

    private var order: String { [service, label, type?.rawValue].map { $0 ?? "" }.joined(separator: "\n") }

    private static func sums(in runs: [RunRecord]) -> [WatchedPlace: Int64] {
        var sums: [WatchedPlace: Int64] = [:]
        for run in runs {
            for loop in run.watched where loop.watchedNs > 0 {
                // A watcher of many services has one entry for those that it does not list.
                let isOfMany = run.targets != nil && loop.service == nil
                let place = WatchedPlace(
                    service: run.service(of: loop),
                    label: isOfMany ? nil : loop.label,
                    type: loop.type
                )
                sums[place] = (sums[place] ?? 0).addingSaturated(loop.watchedNs)
            }
        }
        return sums
    }

    /// Whether it can be the same place, as far as is known of both.
    func fits(_ other: Self) -> Bool {
        Self.fits(service, other.service) && Self.fits(label, other.label) && Self.fits(type, other.type)
    }

    private static func fits<Value: Equatable>(_ value: Value?, _ other: Value?) -> Bool {
        value == nil || other == nil || value == other
    }

    /// For display: `main of shop`.
    var text: String {
        VisibleText.of(label ?? type?.rawValue ?? "a loop", limit: 80)
            + (service.map { " of " + VisibleText.of($0, limit: 80) } ?? "")
    }
}
