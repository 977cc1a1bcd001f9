/// What is sent, where to, and how.
package struct ShippingOptions: Sendable {
    /// Report directories, or directories that hold some.
    package var directories: [String]
    /// Where an OTLP receiver listens, `https://otlp.example.com:4318`. `/v1/logs` and `/v1/metrics` are put behind it.
    package var endpoint: String
    /// With each request.
    package var headers: [(name: String, value: String)] = []
    /// A file with a bearer token. It is read again for each request.
    package var tokenFile: String?
    /// The token itself, where there is no file.
    package var token: String?
    /// The file that remembers what was acknowledged.
    package var checkpoint: String
    /// Ends when everything that is there was sent.
    package var endsWhenSent = false
    /// Reports in one request. Run records, too.
    package var batch = 256
    /// How long the first report of a batch waits for others.
    package var linger = Duration.milliseconds(500)
    /// A stall that lasts for so long is also sent before it has ended.
    package var ongoingAfter = Duration.seconds(10)
    /// For a request, its answer included.
    package var patience = Duration.seconds(30)

    package init(directories: [String], endpoint: String, checkpoint: String) {
        (self.directories, self.endpoint, self.checkpoint) = (directories, endpoint, checkpoint)
    }
}

/// What there is to tell while reports are sent.
package enum ShippingNote: Hashable, Sendable, CustomStringConvertible {
    case waiting(directory: String)
    case unavailable(kind: String, reason: String, next: Duration)
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
            "the receiver takes no \(kind): \(reason); next try in \(Int(next / .seconds(1)) + 1) s"
        case .available(let kind, let after): "the receiver takes \(kind) again, after \(Int(after / .seconds(1))) s"
        case .unknownPath(let kind, let status):
            "the receiver has no place for \(kind) (\(status)): they are not sent to it"
        case .refused(let kind, let id, let reason):
            "the receiver refuses \(kind) \(id), which is not sent again: \(reason)"
        case .rejected(let kind, let count, let reason):
            "the receiver left out \(count) \(kind)\(reason.isEmpty ? "" : ": \(reason)")"
        case .lost(let count):
            "\(count) \(count == 1 ? "report" : "reports") made room for newer ones before they could be sent"
        case .checkpoint(let reason): "\(reason) (what is sent now may be sent again by the next run)"
        case .unreadable(let reason): reason
        }
    }
}

/// What was done in one run.
package struct ShippingTotals: Codable, Hashable, Sendable {
    /// Versions of reports: a stall that was sent while it lasted counts twice.
    package var stalls = 0
    /// Versions of run records.
    package var runs = 0
    /// By the receiver, for good.
    package var refused = 0
    /// Reports that were gone before they were sent.
    package var lost = 0
    /// Files that could not be read.
    package var unreadable = 0
    /// What was known and not sent at the end.
    package var unsent = 0
    package var requests = 0

    /// Whether everything that was there is with the receiver.
    package var isWhole: Bool { refused == 0 && lost == 0 && unreadable == 0 && unsent == 0 }
}

extension ShippingTotals: CustomStringConvertible {
    package var description: String {
        let sent =
            "sent \(Self.count(stalls, "stall")) and \(Self.count(runs, "run record")) in \(Self.count(requests, "request"))"
        let rest = [(refused, "refused"), (lost, "lost"), (unreadable, "unreadable"), (unsent, "not sent")]
        return ([sent] + rest.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }).joined(separator: "; ")
    }

    private static func count(_ number: Int, _ word: String) -> String { "\(number) \(word)\(number == 1 ? "" : "s")" }
}
