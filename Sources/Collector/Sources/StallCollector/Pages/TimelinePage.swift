import StallReports
import StallStore

/// The page of one host: when each of its loops was stalled.
struct TimelinePage {
    let title = "Hosts"
    let team: String
    let since: [FaultsPage.Option]
    /// The end of the range. Nil if that is now.
    let until: String?
    let hosts: [FaultsPage.Option]
    let services: [FaultsPage.Option]
    /// What is shown, or what the user has to choose.
    let summary: String
    /// The time that the pictures show.
    let range: String
    let hasLoops: Bool
    let loops: [Loop]
    let stallsNote: String?
    let stalls: [LiveStall]

    /// A loop, queue or pool, with its stalls from left to right.
    struct Loop {
        var label: String
        var service: String
        var host: String
        var count: Int64
        var total: String
        var picture: String
    }

    private struct Watched: Hashable, Comparable {
        var host: String
        var service: String
        var label: String

        init(_ stall: StoredStall) { (host, service, label) = (stall.host, stall.service, stall.label) }

        static func < (left: Self, right: Self) -> Bool {
            (left.host, left.service, left.label) < (right.host, right.service, right.label)
        }
    }

    /// - Parameter found: The latest stalls, ``limit`` at most. Nil unless a host was chosen.
    init(_ question: QuestionText, _ choices: Choices, _ found: [StoredStall]?) {
        let query = question.query
        team = query.team
        (since, until) = (FaultsPage.ranges(question.since), question.until.isEmpty ? nil : question.until)
        hosts = FaultsPage.options(choices.hosts.map { ($0, $0) }, chosen: query.hosts)
        services = FaultsPage.options(choices.services.map { ($0, $0) }, chosen: query.services)
        range = "\(moment(query.since)) to \(moment(query.until)) (UTC)"
        let all = found ?? []
        loops = Dictionary(grouping: all) { Watched($0) }.sorted { $0.key < $1.key }.map { watched, stalls in
            Loop(
                label: watched.label,
                service: watched.service,
                host: watched.host,
                count: Int64(stalls.count),
                total: length(stalls.map(\.durationNs).saturatingSum()),
                picture: Bars.timeline(stalls.map { Self.share($0, query) })
            )
        }
        hasLoops = !all.isEmpty
        stalls = all.prefix(question.limit).map { LiveStall($0) }
        stallsNote = stalls.count < all.count ? "Shown are the latest \(stalls.count)." : nil
        let isCut = all.count == Self.limit ? " Bars and sums are of the latest \(Self.limit) stalls." : ""
        summary =
            found == nil
            ? "Choose a host." : hasLoops ? "Stalls that were only counted are not shown.\(isCut)" : "No stalls."
    }

    /// The largest number of stalls in the pictures.
    static let limit = QuestionText.limits.upperBound

    /// The part of the range in which a stall was, from 0 to 1.
    private static func share(_ stall: StoredStall, _ query: StallQuery) -> ClosedRange<Double> {
        let whole = Double(max(1, query.until.nanoseconds(since: query.since)))
        let start = min(max(0, Double(stall.startedAt.nanoseconds(since: query.since)) / whole), 1)
        return start...min(1, start + max(0, Double(stall.durationNs)) / whole)
    }
}
