import StallReports

/// A moment as an operator tells it, in the zone of ``ShownTime``: `2h` or `2h ago`, `yesterday`, `today 14:00`, `14:00`, `2026-11-22`, `2026-11-22 14:00:05`, RFC 3339.
struct Moment: Hashable {
    private let text: String
    private let now: Timestamp

    /// A day without a time is its first moment; a time without a day is the last one that was. Nil for anything else.
    init?(_ text: String, now: Timestamp = .now()) {
        (self.text, self.now) = (text.trimmed, now)
        if Self.read(self.text, now) == nil { return nil }
    }

    /// When it is, in the zone that holds by now: the command line may name that after the moment.
    var timestamp: Timestamp { Self.read(text, now) ?? now }

    private static func read(_ text: String, _ now: Timestamp) -> Timestamp? {
        if let timestamp = Timestamp(rfc3339: text) { return timestamp }
        if let length = length(text) { return now.advanced(byNanoseconds: -length.nanoseconds) }
        return text.lowercased() == "now" ? now : dayAndTime(text, now)
    }

    /// `2h`, `2h ago`, and `-2h` as journalctl takes it.
    private static func length(_ text: String) -> DurationText? {
        var text = text[...]
        if text.hasSuffix(" ago") { text = text.dropLast(4) } else if text.hasPrefix("-") { text = text.dropFirst() }
        return DurationText(String(text))
    }

    private static func dayAndTime(_ text: String, _ now: Timestamp) -> Timestamp? {
        let isDate = text.first?.isNumber == true
        let parts = text.split(maxSplits: 1) { $0 == " " || isDate && $0 == "T" }.map { String($0).trimmed }
        switch parts.count {
        case 1: return moment(day(parts[0], now), "00:00:00") ?? last(time(parts[0]), now)
        case 2: return moment(day(parts[0], now), time(parts[1]))
        default: return nil
        }
    }

    /// At two in the morning 23:00 is last night's.
    private static func last(_ time: String?, _ now: Timestamp) -> Timestamp? {
        guard let today = moment(day("today", now), time), today > now else { return moment(day("today", now), time) }
        return moment(day("yesterday", now), time)
    }

    private static func moment(_ day: String?, _ time: String?) -> Timestamp? {
        guard let day, let time else { return nil }
        return Timestamp(rfc3339: "\(day)T\(time)Z").map { ShownTime.moment($0) }
    }

    private static func day(_ text: String, _ now: Timestamp) -> String? {
        switch text.lowercased() {
        case "today": now.day
        case "yesterday": ShownTime.startOfDay(of: now, plus: -1).day
        default: text.utf8.count == 10 ? text : nil
        }
    }

    /// With seconds, whether they are told or not.
    private static func time(_ text: String) -> String? {
        switch text.utf8.count(where: { $0 == UInt8(ascii: ":") }) {
        case 1: text + ":00"
        case 2: text
        default: nil
        }
    }
}

extension String {
    fileprivate var trimmed: String {
        var rest = self[...]
        while rest.first == " " { rest.removeFirst() }
        while rest.last == " " { rest.removeLast() }
        return String(rest)
    }
}
