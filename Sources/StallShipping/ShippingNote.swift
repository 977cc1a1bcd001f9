/// The events to report while reports are sent.
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
            "the receiver took \(kind), and left out \(count) of what they hold\(reason.isEmpty ? "" : ": \(reason)")"
        case .lost(let count):
            "\(count) \(count == 1 ? "report" : "reports") made room for newer ones before they could be sent"
        case .checkpoint(let reason): "\(reason) (what is sent now may be sent again by the next run)"
        case .unreadable(let reason): reason
        }
    }
}
