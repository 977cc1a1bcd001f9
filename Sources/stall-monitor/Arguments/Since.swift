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
    func includes(_ stall: StallOutline) -> Bool {
        stall.state == .ongoing || stall.lastKnownMoment >= moment
    }

    func includes(_ report: StallReport) -> Bool { includes(StallOutline(report)) }
}
