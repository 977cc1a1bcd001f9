import CoreMetrics
import Synchronization

/// A metrics backend with the text format of Prometheus, for names and labels that need no escaping.
final class TextMetrics: MetricsFactory, Sendable {
    private struct Series: Hashable, Sendable {
        let name: String
        let labels: String
    }

    private struct Family: Sendable {
        var type: String
        var values: [Series: Double] = [:]
    }

    private let families = Mutex<[String: Family]>([:])

    /// The page that is scraped.
    var text: String {
        families.withLock { families in
            families.sorted { $0.key < $1.key }.map { name, family in
                let lines = family.values.map { "\($0.name)\($0.labels) \($1)\n" }.sorted()
                return "# TYPE \(name) \(family.type)\n" + lines.joined()
            }.joined()
        }
    }

    func change(_ instrument: Instrument, _ suffix: String = "", _ change: (inout Double) -> Void) {
        families.withLock {
            let series = Series(name: instrument.name + suffix, labels: instrument.labels)
            change(&$0[instrument.name, default: Family(type: instrument.type)].values[series, default: 0])
        }
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        Instrument(self, label + ".total", "counter", dimensions)
    }

    func makeFloatingPointCounter(label: String, dimensions: [(String, String)]) -> any FloatingPointCounterHandler {
        Instrument(self, label + ".total", "counter", dimensions)
    }

    func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        Instrument(self, label, "gauge", dimensions)
    }

    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        Instrument(self, label, "gauge", dimensions)
    }

    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        Instrument(self, label + ".seconds", "summary", dimensions)
    }

    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) {}
    func destroyMeter(_ handler: any MeterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

/// One series, or the two of a summary.
final class Instrument: CounterHandler, FloatingPointCounterHandler, MeterHandler, RecorderHandler, TimerHandler {
    private let metrics: TextMetrics
    let name: String
    let type: String
    let labels: String

    init(_ metrics: TextMetrics, _ label: String, _ type: String, _ dimensions: [(String, String)]) {
        (self.metrics, self.type) = (metrics, type)
        name = label.map { $0 == "." ? "_" : $0 }.map(String.init).joined()
        let pairs = dimensions.map { "\($0.0)=\"\($0.1)\"" }.joined(separator: ",")
        labels = pairs.isEmpty ? "" : "{\(pairs)}"
    }

    func increment(by amount: Int64) { metrics.change(self) { $0 += Double(amount) } }
    func increment(by amount: Double) { metrics.change(self) { $0 += amount } }
    func decrement(by amount: Double) { metrics.change(self) { $0 -= amount } }
    func set(_ value: Int64) { metrics.change(self) { $0 = Double(value) } }
    func set(_ value: Double) { metrics.change(self) { $0 = value } }
    func record(_ value: Int64) { set(value) }
    func record(_ value: Double) { set(value) }
    func reset() {}

    func recordNanoseconds(_ duration: Int64) {
        metrics.change(self, "_sum") { $0 += Double(duration) / 1e9 }
        metrics.change(self, "_count") { $0 += 1 }
    }
}
