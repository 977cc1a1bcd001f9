import HTTPTypes
import Hummingbird
import StallReports
import StallStore

/// Compares the clock of a sender that names its time (`Date`, as `ship` does) with the collector's.
///
/// If the sender's is ahead by more than a report's time may be, one of the two is wrong, and it is not known which one. The reports would be
/// refused for good, and be lost if it is the collector's: so nothing is taken, and the sender keeps them until the clocks agree.
enum SenderClock {
    static func check(_ request: Request, now: Timestamp = .now()) throws(Refusal) {
        guard let text = request.headers[.date], let sent = time(text) else { return }
        let ahead = sent.nanoseconds(since: now)
        guard ahead > Arrival.aheadNs else { return }
        throw Refusal(
            .serviceUnavailable,
            "the sender's clock is \(ahead / Hours.hourNs) hours ahead of the collector's: one of the two is wrong",
            // The body is not read.
            [.retryAfter: "60", .connection: "close"]
        )
    }

    private static let months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(separator: " ")

    /// Of a date as HTTP writes it (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`. Nil if it has another form.
    static func time(_ text: String) -> Timestamp? {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 6, parts[0].hasSuffix(","), parts[5] == "GMT",
            let month = months.firstIndex(of: parts[2])
        else { return nil }
        let (year, day, time) = (parts[3], parts[1], parts[4])
        return Timestamp(rfc3339: "\(year)-\(month < 9 ? "0" : "")\(month + 1)-\(day)T\(time)Z")
    }
}
