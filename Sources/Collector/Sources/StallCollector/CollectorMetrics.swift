import StallStore
import Synchronization

/// The collector's own counts for `/metrics`, as totals of all teams. Any thread.
final class CollectorMetrics: Sendable {
    final class Counter: Sendable {
        private let value = Atomic<Int64>(0)
        func add(_ count: Int) { value.wrappingAdd(Int64(count), ordering: .relaxed) }
        var count: Int64 { value.load(ordering: .relaxed) }
    }

    let requests = Counter()
    let accepted = Counter()
    let new = Counter()
    let refused = Counter()
    let bytes = Counter()
    let overloads = Counter()
    let failures = Counter()
    let limited = Counter()
    let denied = Counter()
    let removed = Counter()
    let alertsTold = Counter()
    let alertFailures = Counter()

    private typealias Row = (name: String, type: String, help: String, value: Int64)

    /// In Prometheus' text format.
    ///
    /// - Parameter size: Nil if the store does not answer. Then its rows are missing.
    func text(_ size: StoreSize?) -> String {
        let counts: [Row] = [
            ("ingest_requests_total", "counter", "Requests that brought reports.", requests.count),
            ("ingest_records_total", "counter", "Reports and run records that were accepted.", accepted.count),
            ("ingest_new_total", "counter", "Those of them that were not known yet.", new.count),
            ("ingest_refused_total", "counter", "Those that were refused.", refused.count),
            ("ingest_bytes_total", "counter", "What requests brought, unpacked.", bytes.count),
            ("ingest_overloads_total", "counter", "Requests that were told to come later.", overloads.count),
            ("ingest_failures_total", "counter", "Requests that the store did not take.", failures.count),
            ("ingest_limited_total", "counter", "Requests of tokens that had sent more than they may.", limited.count),
            ("denied_total", "counter", "Requests without a token that is known.", denied.count),
            ("removed_stalls_total", "counter", "Stalls removed by age or size.", removed.count),
            ("alerts_told_total", "counter", "Alerts and ends of alerts that receivers were told.", alertsTold.count),
            ("alert_failures_total", "counter", "Messages that a receiver did not take.", alertFailures.count),
        ]
        var sizes: [Row] = []
        if let size {
            sizes = [
                ("store_bytes", "gauge", "What the store takes on the disk.", size.bytes),
                ("store_stalls", "gauge", "Stalls in the store.", size.stalls),
                ("store_runs", "gauge", "Runs of monitors in the store.", size.runs),
            ]
        }
        return (counts + sizes).map { row in
            let name = "stall_collector_\(row.name)"
            return "# HELP \(name) \(row.help)\n# TYPE \(name) \(row.type)\n\(name) \(row.value)\n"
        }
        .joined()
    }
}
