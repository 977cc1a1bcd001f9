import Foundation
import Testing

/// A real receiver in a separate process, ended with the test. `otlp_receiver.py` describes how to set its answers.
final class OTLPReceiver {
    private let folder: String
    private let server: PythonServer
    var url: String { server.url }

    /// - Parameter folder: where it keeps what it accepted, also for a later receiver.
    init(in folder: String, plan: String? = nil, certificate: String? = nil) throws {
        self.folder = folder
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        if let plan { try plan.write(toFile: folder + "/plan", atomically: true, encoding: .utf8) }
        server = try PythonServer("Shipping/otlp_receiver.py", in: folder, certificate: certificate)
    }

    struct Request: Decodable {
        var path: String
        var headers: [String: String]
        var body: Body

        struct Body: Decodable {
            var resourceLogs: [Resource]?
            var resourceMetrics: [Metrics]?
        }
        struct Metrics: Decodable {}
        struct Resource: Decodable { var scopeLogs: [Scope] }
        struct Scope: Decodable { var logRecords: [Record] }
        struct Record: Decodable { var attributes: [Attribute] }
        struct Attribute: Decodable {
            var key: String
            var value: Value
        }
        struct Value: Decodable { var stringValue: String? }

        /// An attribute of each record.
        func all(_ key: String) -> [String] {
            (body.resourceLogs ?? []).flatMap(\.scopeLogs).flatMap(\.logRecords)
                .compactMap { $0.attributes.first { $0.key == key }?.value.stringValue }
        }
    }

    /// What it accepted, in order.
    func accepted() throws -> [Request] {
        guard let text = try? String(contentsOfFile: folder + "/accepted", encoding: .utf8) else { return [] }
        return try text.split(separator: "\n").map { try JSONDecoder().decode(Request.self, from: Data($0.utf8)) }
    }

    /// The stalls that it accepted, in order.
    func stalls() throws -> [String] { try accepted().flatMap { $0.all("stall.id") } }

    /// Waits until it has accepted this many.
    func awaitStalls(_ count: Int) throws {
        for _ in 0..<6000 {
            // A line that is still being written does not count.
            if let found = try? stalls().count, found >= count { return }
            usleep(10_000)
        }
        Issue.record("the receiver has \(try stalls().count) stalls of \(count)")
    }

    func end() { server.end() }
}
