import Glibc
import StallReports
import Synchronization

/// The time zone of text: local ($TZ, or the machine's), or UTC with --utc. JSON is always in UTC.
enum ShownTime {
    private static let utc = Atomic<Bool>(false)

    static var isUTC: Bool { utc.load(ordering: .relaxed) }

    /// Switches the whole process to UTC. Call it before anything is shown.
    static func useUTC() { utc.store(true, ordering: .relaxed) }

    /// The zone's offset from UTC in seconds, in whole minutes because RFC 3339 has no seconds there.
    static func offset(at moment: Timestamp) -> Int64 {
        guard !isUTC else { return 0 }
        var seconds = time_t(moment.seconds)
        var parts = unsafe tm()
        guard unsafe localtime_r(&seconds, &parts) != nil else { return 0 }
        return Int64(unsafe parts.tm_gmtoff) / 60 * 60
    }

    /// The moment at which local clocks show the date and time of `civil`.
    ///
    /// - Parameter isEnd: Which of the two moments it is if summer time ends and an hour occurs twice: the later one as the end of a
    ///   range, otherwise the earlier one. Neither leaves a part of that hour out.
    static func moment(_ civil: Timestamp, isEnd: Bool = false) -> Timestamp {
        guard !isUTC else { return civil }
        let (summer, winter) = (seconds(civil, isSummer: 1), seconds(civil, isSummer: 0))
        let both = [summer, winter].filter { $0 + offset(at: Timestamp(seconds: $0)) == civil.seconds }
        // In an hour that is left out, the system decides.
        let found = (isEnd ? both.max() : both.min()) ?? seconds(civil, isSummer: -1)
        return Timestamp(seconds: found, nanoseconds: Int64(civil.nanoseconds))
    }

    private static func seconds(_ civil: Timestamp, isSummer: Int32) -> Int64 {
        var seconds = time_t(civil.seconds)
        var parts = unsafe tm()
        guard unsafe gmtime_r(&seconds, &parts) != nil else { return civil.seconds }
        unsafe parts.tm_isdst = isSummer
        return Int64(unsafe mktime(&parts))
    }

    /// The start of the day that is `days` after the day of `moment`.
    static func startOfDay(of moment: Timestamp, plus days: Int64 = 0) -> Timestamp {
        let civil = Timestamp(rfc3339: "\(moment.day)T00:00:00Z") ?? moment
        return Self.moment(civil.advanced(byNanoseconds: days * 86_400_000_000_000))
    }
}

extension Timestamp {
    /// Local date and time, and the offset from UTC.
    private var shown: (clock: String, zone: String) {
        let offset = ShownTime.offset(at: self)
        let clock = advanced(byNanoseconds: offset * 1_000_000_000).description
        guard offset != 0 else { return (clock, "Z") }
        let minutes = abs(offset) / 60
        return (clock, "\(offset < 0 ? "-" : "+")\(Self.two(minutes / 60)):\(Self.two(minutes % 60))")
    }

    private static func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }

    /// `2026-01-31T12:00:00Z`, `2026-01-31T13:00:00+01:00`
    var toSeconds: String { shown.clock.prefix(19) + shown.zone }

    /// `2026-01-31T12:00:00.000Z`
    var toMilliseconds: String { shown.clock.prefix(23) + shown.zone }

    /// `01-31 12:00:00`, for narrow columns.
    var withoutYear: String { String(shown.clock.prefix(19).dropFirst(5)).replacing("T", with: " ") }

    /// `2026-01-31`
    var day: String { String(shown.clock.prefix(10)) }

    /// The day in UTC, whatever is shown.
    var dayInUTC: String { String(description.prefix(10)) }

    /// `12:00`
    var timeOfDay: String { String(shown.clock.dropFirst(11).prefix(5)) }

    /// `3h ago`; `now` for less than a second, and for the future.
    func ago(_ now: Timestamp) -> String {
        let age = age(now)
        return age == "now" ? age : "\(age) ago"
    }

    /// `3h`
    func age(_ now: Timestamp) -> String {
        let seconds = now.nanoseconds(since: self) / 1_000_000_000
        let units: [(length: Int64, name: String)] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")]
        // A unit is used only for at least two of it: 90m is more precise than 1h.
        guard seconds > 0, let unit = units.first(where: { seconds >= 2 * $0.length }) ?? units.last else {
            return "now"
        }
        return "\(seconds / unit.length)\(unit.name)"
    }
}

/// A time as an operator writes it, in the zone of ``ShownTime``: `2h`, `2h ago` or `2 hours ago`, `yesterday`, `today 14:00`, `14:00`, `2026-11-22`, `2026-11-22 14:00:05`, RFC 3339.
struct Moment: Hashable {
    private let text: String
    private let now: Timestamp

    /// A date without a time means the start of that day; a time without a date means its latest occurrence. Nil for anything
    /// else.
    init?(_ text: String, now: Timestamp = .now()) {
        (self.text, self.now) = (text.trimmed, now)
        if Self.read(self.text, now, isEnd: false) == nil { return nil }
    }

    /// Evaluated late, because `--utc` may come after the time on the command line.
    var timestamp: Timestamp { Self.read(text, now, isEnd: false) ?? now }

    /// The end of a range. At 3:05, `--since 2:50 --until 3:10` means five minutes from now: a time of day that is not yet over
    /// today is today's if yesterday's is before the beginning.
    func timestamp(asEndAfter start: Timestamp?) -> Timestamp {
        let end = Self.read(text, now, isEnd: true) ?? now
        guard let start, end < start else { return end }
        return Self.moment(Self.day("today", now), Self.time(text), isEnd: true) ?? end
    }

    private static func read(_ text: String, _ now: Timestamp, isEnd: Bool) -> Timestamp? {
        if let timestamp = Timestamp(rfc3339: text) { return timestamp }
        if let length = length(text) { return now.advanced(byNanoseconds: -length.nanoseconds) }
        return text.lowercased() == "now" ? now : dayAndTime(text, now, isEnd)
    }

    /// `2h`, `2h ago`, `2 hours ago`, and `-2h` as in journalctl.
    private static func length(_ text: String) -> DurationText? {
        guard text.hasSuffix(" ago") else { return DurationText(text.hasPrefix("-") ? String(text.dropFirst()) : text) }
        let words = text.dropLast(4).split(separator: " ")
        return words.count == 2 ? length(words[0], words[1]) : DurationText(String(text.dropLast(4)))
    }

    /// Longer units are of no certain length.
    private static let units: [(name: String, seconds: Int64)] = [
        ("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800),
    ]

    /// `2 hours`, `1 week`
    private static func length(_ number: Substring, _ unit: Substring) -> DurationText? {
        let name = unit.lowercased()
        guard let unit = units.first(where: { name == $0.name || name == $0.name + "s" }),
            number.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let count = Int64(number)
        else { return nil }
        let (length, isTooLong) = count.multipliedReportingOverflow(by: unit.seconds * 1_000_000_000)
        return isTooLong ? nil : DurationText(nanoseconds: length)
    }

    private static func dayAndTime(_ text: String, _ now: Timestamp, _ isEnd: Bool) -> Timestamp? {
        let isDate = text.first?.isNumber == true
        let parts = text.split(maxSplits: 1) { $0 == " " || isDate && $0 == "T" }.map { String($0).trimmed }
        switch parts.count {
        case 1: return moment(day(parts[0], now), "00:00:00", isEnd: false) ?? last(time(parts[0]), now, isEnd)
        case 2: return moment(day(parts[0], now), time(parts[1]), isEnd: isEnd)
        default: return nil
        }
    }

    /// At two in the morning, 23:00 means 23:00 of the day before.
    private static func last(_ time: String?, _ now: Timestamp, _ isEnd: Bool) -> Timestamp? {
        guard let today = moment(day("today", now), time, isEnd: false) else { return nil }
        return moment(day(today > now ? "yesterday" : "today", now), time, isEnd: isEnd)
    }

    private static func moment(_ day: String?, _ time: String?, isEnd: Bool) -> Timestamp? {
        guard let day, let time else { return nil }
        return Timestamp(rfc3339: "\(day)T\(time)Z").map { ShownTime.moment($0, isEnd: isEnd) }
    }

    private static func day(_ text: String, _ now: Timestamp) -> String? {
        switch text.lowercased() {
        case "today": now.day
        case "yesterday": ShownTime.startOfDay(of: now, plus: -1).day
        default: text.utf8.count == 10 ? text : nil
        }
    }

    /// Completes it: `3:00` becomes `03:00:00`.
    private static func time(_ text: String) -> String? {
        let colons = text.count { $0 == ":" }
        guard (1...2).contains(colons) else { return nil }
        return (text.prefix { $0 != ":" }.count == 1 ? "0" : "") + text + (colons == 1 ? ":00" : "")
    }
}

extension StringProtocol where SubSequence == Substring {
    /// Without the blanks at both ends.
    var trimmed: String {
        var rest = self[...]
        while rest.first == " " { rest.removeFirst() }
        while rest.last == " " { rest.removeLast() }
        return String(rest)
    }
}
