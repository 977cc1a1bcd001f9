import StallReading
import StallReports
import Testing

@Suite("Report follower that begins late", .timeLimit(.minutes(10)))
struct LateFollowerTests {
    private let directory = TemporaryDirectory()

    /// Fails a test that would otherwise wait forever; the machine may be slow.
    private static let patience = Duration.seconds(60)

    @Test("from a moment before: what was written since is returned, older files are not")
    func fromBefore() throws {
        let (old, new) = (Sample.recovered(), Sample.recovered())
        try directory.store.write(old)
        directory.age("\(ReportFileName(.stall, old.id))", bySeconds: 60)
        let start = Timestamp.now()
        try directory.store.write(new)
        var follower = try ReportFollower(path: directory.path, includesPast: false, from: start)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(new))
        #expect(try follower.next(timeout: .zero) == nil)
    }
}
