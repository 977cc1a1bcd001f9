import Glibc
import Testing

@testable import StallReading
@testable import StallReports

/// How a monitor behaves in a directory that it shares with others.
@Suite("Shared report directory", .timeLimit(.minutes(2)))
struct DirectoryConcernTests {
    private let directory = TemporaryDirectory()

    private func write(
        _ report: StallReport,
        _ limits: ReportDirectory.Limits = .init(),
        own: inout Set<ReportFileName>
    ) throws -> Set<ReportDirectory.Concern> {
        var memory = WriterMemory(own: own)
        defer { own = memory.own }
        let store = ReportDirectory(path: directory.path, limits: limits)
        return try store.write(try report.json(), as: ReportFileName(.stall, report.id), &memory).concerns
    }

    @Test("a run's own reports stay while others' can go, and go when they exceed the limit themselves")
    func ownGoLast() throws {
        let limits = ReportDirectory.Limits(reports: 6)
        var own: Set<ReportFileName> = []
        let mine = (0..<3).map { _ in Sample.recovered() }
        for report in mine { #expect(try write(report, limits, own: &own).isEmpty) }
        // Younger than ours, but removed first anyway.
        for _ in 0..<4 { directory.plant(try Sample.recovered().json(), as: "stall-\(ULID.make()).json") }
        let others = directory.names.filter { ReportFileName($0).map { !own.contains($0) } == true }
        for _ in 0..<2 { #expect(try write(Sample.recovered(), limits, own: &own).isEmpty) }
        #expect(own.count == 5 && own.allSatisfy { directory.names.contains($0.description) })
        #expect(directory.names.filter(others.contains).count == 1)
        for _ in 0..<3 { #expect(try write(Sample.recovered(), limits, own: &own).isEmpty) }
        #expect(directory.names == own.map(\.description).sorted() && own.count == 6)
        #expect(!own.contains(ReportFileName(.stall, mine[0].id)))
    }

    @Test("other processes' endless reports displace none of ours, and are reported")
    func lastingOthers() throws {
        let limits = ReportDirectory.Limits(reports: 6)
        var own: Set<ReportFileName> = []
        try directory.store.prepare()
        var late = UInt128.max
        for _ in 0..<7 {
            directory.plant(
                try Sample.ongoing(id: ULID(rawValue: late)).json(),
                as: "stall-\(ULID(rawValue: late)).json"
            )
            late -= 1
        }
        for _ in 0..<3 { #expect(try write(Sample.recovered(), limits, own: &own) == [.filled]) }
        #expect(own.count == 3 && own.allSatisfy { directory.names.contains($0.description) })
        #expect(directory.names.count == 10)
    }

    @Test(
        "files of another user do not count and stay; when they reach the limit they are reported",
        .enabled(if: geteuid() == 0)
    )
    func otherUsers() throws {
        let limits = ReportDirectory.Limits(reports: 3)
        var own: Set<ReportFileName> = []
        try directory.store.prepare()
        var planted: [String] = []
        for round in 0..<4 {
            #expect(try write(Sample.recovered(), limits, own: &own).isEmpty, "\(round)")
            planted.append("stall-\(ULID.make()).json")
            directory.plant(try Sample.recovered().json(), as: planted[round])
            try #require(unsafe chown("\(directory.path)/\(planted[round])", 65534, 65534) == 0)
        }
        #expect(try write(Sample.recovered(), limits, own: &own) == [.filled])
        #expect(own.count == 3 && Set(directory.names) == Set(planted + own.map(\.description)))
    }

    @Test(
        "files of other kinds are reported as soon as they exceed the limits, by number or by size on the disk"
    )
    func otherFiles() throws {
        var own: Set<ReportFileName> = []
        try directory.store.prepare()
        let few = ReportDirectory.Limits(reports: 3)
        for number in 0..<3 { directory.plant("".utf8, as: "core.\(number)") }
        directory.plant([], as: ".draft-\(ULID.make())")
        #expect(try write(Sample.recovered(), few, own: &own).isEmpty)
        directory.plant("".utf8, as: "stall-\(ULID.make()).json")
        #expect(try write(Sample.recovered(), few, own: &own) == [.filled])
        #expect(try write(Sample.recovered(), own: &own).isEmpty)
        directory.plant(repeatElement(1, count: 1 << 20), as: "core")
        #expect(try write(Sample.recovered(), .init(bytes: 1 << 20), own: &own).isEmpty)
        #expect(try write(Sample.recovered(), .init(bytes: 1 << 19), own: &own) == [.filled])
        #expect(own.count == 5)
    }

    @Test(
        "a directory that others can write to is reported; a sticky or only readable one is not",
        arguments: [
            (0o700, false), (0o755, false), (0o770, true), (0o707, true), (0o777, true), (0o1777, false),
            (0o1770, false),
            (0o2775, true),
        ]
    )
    func modes(mode: mode_t, isTold: Bool) throws {
        var own: Set<ReportFileName> = []
        try directory.store.prepare()
        try #require(unsafe chmod(directory.path, mode) == 0)
        #expect(directory.store.exposures == (isTold ? [.openToOthers] : []))
        #expect(try write(Sample.recovered(), own: &own) == (isTold ? [.openToOthers] : []))
        #expect(try directory.reader.contents().reports.count == 1)
    }

    @Test("another user's directory is reported", .enabled(if: geteuid() == 0))
    func otherOwner() throws {
        try directory.store.prepare()
        try #require(unsafe chown(directory.path, 65534, 65534) == 0)
        #expect(directory.store.exposures == [.openToOthers])
    }

    @Test(
        "a link is reported, with and without a slash after it, and is followed; a link further up is not reported"
    )
    func links() throws {
        var own: Set<ReportFileName> = []
        let target = directory.root + "/target"
        unsafe mkdir(target, 0o700)
        try #require(unsafe symlink(target, directory.path) == 0)
        #expect(try write(Sample.recovered(), own: &own) == [.link])
        #expect(ReportDirectory(path: directory.path + "//").exposures == [.link])
        let below = ReportDirectory(path: directory.path + "/below")
        try below.prepare()
        #expect(below.exposures.isEmpty)
        #expect(try ReportReader(path: target).contents().reports.count == 1)
        #expect(ReportDirectory(path: directory.root + "/nowhere").exposures.isEmpty)
    }
}
