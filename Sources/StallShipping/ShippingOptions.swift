import StallReports

/// What is sent, to which receiver, and how.
package struct ShippingOptions: Sendable {
    /// Report directories, or directories that contain some.
    package var directories: [String]
    /// The address of an OTLP receiver, `https://otlp.example.com:4318`, to which `/v1/logs` and `/v1/metrics` are appended. Or
    /// of a collector: `/v1/reports`.
    package var endpoint: String
    /// Whether it is a collector, which accepts full reports.
    package var isCollector = false
    /// Sent with each request.
    package var headers: [(name: String, value: String)] = []
    /// A file with a bearer token. It is read again for each request.
    package var tokenFile: String?
    /// The token itself, if there is no file.
    package var token: String?
    /// The file that stores what was acknowledged.
    package var checkpoint: String
    /// Whether the run ends when everything that exists was sent.
    package var endsWhenSent = false
    /// The largest number of reports, or of run records, in one request.
    package var batch = 256
    /// How long the first report of a batch waits for others.
    package var linger = Duration.milliseconds(500)
    /// The run record of a living process is sent at least this often, also if its monitor has nothing to write.
    package var signOfLife = Duration.seconds(300)
    /// A stall that lasts this long is also sent before it has ended.
    package var ongoingAfter = Duration.seconds(10)
    /// The timeout of a request, including its answer.
    package var timeout = Duration.seconds(30)
    /// How long all requests together may take after a cancellation, with the one that is under way then.
    package var lastTry = Duration.seconds(5)

    package init(directories: [String], endpoint: String, checkpoint: String) {
        (self.directories, self.endpoint, self.checkpoint) = (directories, endpoint, checkpoint)
    }

    /// How often in a row a run tries in vain before it ends. Nil: it does not end for that.
    var tries: Int? { endsWhenSent ? 3 : nil }

    var wire: Wire { isCollector ? .collector : .telemetry }
}

/// The counts of one run.
package struct ShippingTotals: Codable, Hashable, Sendable {
    /// Versions of reports: a stall that was also sent while it lasted counts twice.
    package var stalls = 0
    /// Versions of run records.
    package var runs = 0
    /// Refused permanently by the receiver.
    package var refused = 0
    /// Reports that were removed before they were sent.
    package var lost = 0
    /// Files that could not be read.
    package var unreadable = 0
    /// Known shipments that were not sent by the end.
    package var unsent = 0
    package var requests = 0

    /// Whether everything that existed was delivered.
    package var isWhole: Bool { refused == 0 && lost == 0 && unreadable == 0 && unsent == 0 }
}

extension ShippingTotals: CustomStringConvertible {
    package var description: String {
        let sent =
            "sent \(quantity(stalls, "stall")) and \(quantity(runs, "run record")) in \(quantity(requests, "request"))"
        let rest = [
            (refused, "refused"), (lost, "lost"), (unreadable, "unreadable"),
            (unsent, "not sent, kept for the next run"),
        ]
        return ([sent] + rest.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }).joined(separator: "; ")
    }
}

/// Events while reports are sent, as messages for users.
package enum ShippingNote: Hashable, Sendable, CustomStringConvertible {
    case waiting(directory: String)
    /// - Parameter next: Nil if this run does not try again.
    case unavailable(kind: String, reason: String, next: Duration?)
    case available(kind: String, after: Duration)
    case unknownPath(kind: String, status: String)
    case refused(kind: String, id: String, reason: String)
    case rejected(kind: String, count: Int, reason: String)
    case lost(Int)
    case checkpoint(String)
    case unreadable(String)

    package var description: String {
        switch self {
        case .waiting(let directory): "waiting for the report directory \(directory) to appear"
        case .unavailable(let kind, let reason, let next):
            "the receiver takes no \(kind): \(reason)"
                + (next.map { "; next try in \(Int($0 / .seconds(1)) + 1) s" } ?? "")
        case .available(let kind, let after): "the receiver takes \(kind) again, after \(Int(after / .seconds(1))) s"
        case .unknownPath(let kind, let status):
            "the receiver has no place for \(kind) (\(status)): they are not sent to it"
        case .refused(let kind, let id, let reason):
            "the receiver refuses \(kind) \(id), which is not sent again: \(reason)"
        case .rejected(let kind, let count, let reason):
            "the receiver took \(kind), and left out \(count) of what they hold\(reason.isEmpty ? "" : ": \(reason)")"
        case .lost(let count):
            "\(quantity(count, "report")) made room for newer ones before they could be sent"
        case .checkpoint(let reason): "\(reason) (what is sent now may be sent again by the next run)"
        case .unreadable(let reason): reason
        }
    }
}

/// Why nothing can be sent. The text says what to do.
package struct ShippingError: Error, Hashable, Sendable, CustomStringConvertible {
    /// One line for display.
    package let description: String

    init(_ description: String) { self.description = description }
}
