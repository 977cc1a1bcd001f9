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
            "sent \(Self.count(stalls, "stall")) and \(Self.count(runs, "run record")) in \(Self.count(requests, "request"))"
        let rest = [(refused, "refused"), (lost, "lost"), (unreadable, "unreadable"), (unsent, "not sent")]
        return ([sent] + rest.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }).joined(separator: "; ")
    }

    private static func count(_ number: Int, _ word: String) -> String { "\(number) \(word)\(number == 1 ? "" : "s")" }
}
