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

    /// The places that were watched.
    static func watched(in runs: [RunRecord]) -> Set<WatchedPlace> {
        let places = runs.flatMap { run in
            run.watched.filter { $0.watchedNs > 0 }.map { loop in
                // A watcher of many services has one entry for those that it does not list.
                let isOfMany = run.targets != nil && loop.service == nil
                return WatchedPlace(
                    service: run.service(of: loop),
                    label: isOfMany ? nil : loop.label,
                    type: loop.type
                )
            }
        }
        return Set(places)
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
