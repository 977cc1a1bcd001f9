import Foundation
import InMemoryTracing
import Tracing

struct SocketError: Error {
    var call: String
    var number = errno
}

/// A stream socket on this machine's own address.
@safe struct LocalSocket: Sendable {
    let descriptor: Int32

    init(connectedTo port: UInt16) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard unsafe Self.with(port, { unsafe connect(descriptor, $0, $1) }) == 0 else {
            throw SocketError(call: "connect")
        }
    }

    /// On a free port.
    init(listening: Void) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard unsafe Self.with(0, { unsafe bind(descriptor, $0, $1) }) == 0, listen(descriptor, 16) == 0 else {
            throw SocketError(call: "listen")
        }
    }

    init(descriptor: Int32) { self.descriptor = descriptor }

    var port: UInt16 {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        unsafe withUnsafeMutablePointer(to: &address) {
            unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe _ = getsockname(descriptor, $0, &size)
            }
        }
        return UInt16(bigEndian: address.sin_port)
    }

    func write(_ text: String) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = unsafe bytes.withUnsafeBytes {
                unsafe send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return }
            bytes = bytes.dropFirst(count)
        }
    }

    /// The bytes of one read.
    func read() -> String {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe recv(descriptor, $0.baseAddress, $0.count, 0) }
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
    }

    func end() { close(descriptor) }

    private static func with(_ port: UInt16, _ call: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return unsafe withUnsafePointer(to: &address) {
            unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe call($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}

/// Answers each request with the metrics, on a separate thread.
struct MetricsPage {
    let port: UInt16

    init(_ metrics: TextMetrics) throws {
        let listener = try LocalSocket(listening: ())
        port = listener.port
        Thread.detachNewThread {
            while true {
                let client = LocalSocket(descriptor: accept(listener.descriptor, nil, nil))
                guard client.descriptor >= 0 else { continue }
                _ = client.read()
                let page = metrics.text
                client.write(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: \(page.utf8.count)\r\n"
                        + "Connection: close\r\n\r\n\(page)"
                )
                client.end()
            }
        }
    }
}

/// Sends spans to an OTLP receiver: OTLP over HTTP, in JSON.
struct OTLPSender {
    let port: UInt16

    func send(_ spans: [FinishedInMemorySpan]) throws {
        let resource: [String: Any] = ["attributes": Self.attributes(["service.name": "peer-host"])]
        let scope: [String: Any] = ["scope": ["name": "stall-monitor"], "spans": spans.map(Self.span)]
        let body = try JSONSerialization.data(
            withJSONObject: ["resourceSpans": [["resource": resource, "scopeSpans": [scope]]]]
        )
        let connection = try LocalSocket(connectedTo: port)
        defer { connection.end() }
        connection.write(
            "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                + "Content-Length: \(body.count)\r\n\r\n" + String(decoding: body, as: UTF8.self)
        )
        guard connection.read().contains(" 200 ") else { throw SocketError(call: "POST") }
    }

    private static func span(_ span: FinishedInMemorySpan) -> [String: Any] {
        [
            "traceId": span.traceID, "spanId": span.spanID, "parentSpanId": span.parentSpanID ?? "",
            "name": span.operationName, "kind": span.kind == .server ? 2 : 1,
            "startTimeUnixNano": "\(span.startInstant.nanosecondsSinceEpoch)",
            "endTimeUnixNano": "\(span.endInstant.nanosecondsSinceEpoch)",
            "attributes": attributes(span.attributes), "status": ["code": span.status?.code == .error ? 2 : 0],
            "events": span.events.map { event in
                [
                    "name": event.name, "timeUnixNano": "\(event.nanosecondsSinceEpoch)",
                    "attributes": attributes(event.attributes),
                ] as [String: Any]
            },
        ]
    }

    private static func attributes(_ attributes: SpanAttributes) -> [[String: Any]] {
        var values: [String: Any] = [:]
        attributes.forEach { key, value in
            switch value {
            case .int64(let number): values[key] = ["intValue": "\(number)"]
            case .string(let text): values[key] = ["stringValue": text]
            default: values[key] = ["stringValue": "\(value)"]
            }
        }
        return values.map { ["key": $0, "value": $1] }
    }
}
