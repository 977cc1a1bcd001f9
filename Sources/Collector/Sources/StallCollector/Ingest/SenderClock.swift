import Foundation
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

    /// Of a date as HTTP writes it (RFC 9110, 5.6.7). Nil if it has another form.
    private static func time(_ text: String) -> Timestamp? {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = .gmt
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        let date = format.date(from: text)
        return date.flatMap { Int64(exactly: $0.timeIntervalSince1970) }.map { Timestamp(seconds: $0) }
    }
}
