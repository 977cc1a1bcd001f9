import ArgumentParser
import StallReports

/// A moment given as a length of time before now (`10m`) or as itself (RFC 3339).
struct Since: ExpressibleByArgument {
    let moment: Timestamp

    init?(argument: String) {
        if let length = DurationText(argument) {
            moment = Timestamp.now().advanced(byNanoseconds: -length.nanoseconds)
        } else if let moment = Timestamp(rfc3339: argument) {
            self.moment = moment
        } else {
            return nil
        }
    }

    /// Whether the stall lasted until then or later.
    func includes(_ report: StallReport) -> Bool {
        report.state == .ongoing || report.lastKnownMoment >= moment
    }
}

extension StallReport {
    /// Its end, or until when it is known to have lasted.
    var lastKnownMoment: Timestamp { endedAt ?? startedAt.advanced(byNanoseconds: max(0, durationNs)) }
}
