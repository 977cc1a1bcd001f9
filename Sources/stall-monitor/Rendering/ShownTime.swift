import Glibc
import StallReports
import Synchronization

/// In which zone text has its times: the local one ($TZ, or the machine's), or UTC with --utc. JSON is always in UTC.
enum ShownTime {
    private static let utc = Atomic<Bool>(false)

    static var isUTC: Bool { utc.load(ordering: .relaxed) }

    /// From now on, for the whole process. To be called before anything is shown.
    static func useUTC() { utc.store(true, ordering: .relaxed) }

    /// Seconds that the zone is ahead of UTC, in whole minutes: RFC 3339 has no others.
    static func offset(at moment: Timestamp) -> Int64 {
        guard !isUTC else { return 0 }
        var seconds = time_t(moment.seconds)
        var parts = unsafe tm()
        guard unsafe localtime_r(&seconds, &parts) != nil else { return 0 }
        return Int64(unsafe parts.tm_gmtoff) / 60 * 60
    }

    /// The moment at which a clock of the zone shows what a clock of UTC shows at `civil`. Of an hour that comes twice, either.
    static func moment(_ civil: Timestamp) -> Timestamp {
        guard !isUTC else { return civil }
        var seconds = time_t(civil.seconds)
        var parts = unsafe tm()
        guard unsafe gmtime_r(&seconds, &parts) != nil else { return civil }
        // The system is to find out whether summer time holds.
        unsafe parts.tm_isdst = -1
        return Timestamp(seconds: Int64(unsafe mktime(&parts)), nanoseconds: Int64(civil.nanoseconds))
    }

    /// The first moment of the day that lies so many days after that of `moment`.
    static func startOfDay(of moment: Timestamp, plus days: Int64 = 0) -> Timestamp {
        let civil = Timestamp(rfc3339: "\(moment.day)T00:00:00Z") ?? moment
        return Self.moment(civil.advanced(byNanoseconds: days * 86_400_000_000_000))
    }
}

extension Timestamp {
    /// What clocks of the zone show, and how far it is from UTC.
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

    /// `01-31 12:00:00`, where there is little room.
    var withoutYear: String { String(shown.clock.prefix(19).dropFirst(5)).replacing("T", with: " ") }

    /// `2026-01-31`
    var day: String { String(shown.clock.prefix(10)) }

    /// `12:00`
    var timeOfDay: String { String(shown.clock.dropFirst(11).prefix(5)) }

    /// `3h ago`; `now` for less than a second, and for what lies ahead.
    func ago(_ now: Timestamp) -> String {
        let age = age(now)
        return age == "now" ? age : "\(age) ago"
    }

    /// `3h`
    func age(_ now: Timestamp) -> String {
        let seconds = now.nanoseconds(since: self) / 1_000_000_000
        let units: [(length: Int64, name: String)] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")]
        // From two of a unit on: 90m says more than 1h.
        guard seconds > 0, let unit = units.first(where: { seconds >= 2 * $0.length }) ?? units.last else {
            return "now"
        }
        return "\(seconds / unit.length)\(unit.name)"
    }
}
