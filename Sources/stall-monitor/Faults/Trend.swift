import StallReports

/// From the first moment that is told of to the last.
struct TimeSpan: Hashable {
    let start: Timestamp
    let end: Timestamp

    /// Which of so many equal parts a moment lies in; the first or the last for one outside.
    func part(of moment: Timestamp, among parts: Int) -> Int {
        let length = Double(end.nanoseconds(since: start))
        guard length > 0 else { return parts - 1 }
        let share = Double(moment.nanoseconds(since: start)) / length
        return min(max(Int(saturating: share * Double(parts)), 0), parts - 1)
    }
}

/// How many stalls there were in each twelfth of the time that is told of.
struct Trend: Hashable, Encodable {
    static let parts = 12
    private(set) var counts = [Int64](repeating: 0, count: Trend.parts)

    mutating func add(_ count: Int64, at moment: Timestamp, in span: TimeSpan) {
        let part = span.part(of: moment, among: Self.parts)
        counts[part] = counts[part].addingSaturated(max(0, count))
    }

    mutating func add(_ other: Trend) {
        counts = zip(counts, other.counts).map { $0.addingSaturated($1) }
    }

    enum Direction: String, Encodable {
        /// Seen in the second half only.
        case new
        case rising, steady, falling
        /// Seen in the first half only.
        case gone
        /// Too few to tell.
        case few
    }

    /// The halves of the time compared: more than two standard deviations apart, counts being what they are (Poisson), is no chance.
    var direction: Direction {
        let early = counts.prefix(Self.parts / 2).saturatingSum()
        let late = counts.suffix(Self.parts / 2).saturatingSum()
        guard early.addingSaturated(late) >= 4 else { return .few }
        if early == 0 { return .new }
        if late == 0 { return .gone }
        let difference = Double(late) - Double(early)
        if abs(difference) <= 2 * (Double(early) + Double(late)).squareRoot() { return .steady }
        return difference > 0 ? .rising : .falling
    }

    /// `▁▁▂▇█▁`, a blank for none.
    var line: String {
        let marks = Array("▁▂▃▄▅▆▇█")
        guard let most = counts.max(), most > 0 else { return "" }
        return String(counts.map { $0 == 0 ? " " : marks[min(Int(Double($0) / Double(most) * 8), 7)] })
    }

    private enum CodingKeys: String, CodingKey { case counts, direction }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(counts, forKey: .counts)
        try container.encode(direction, forKey: .direction)
    }
}
