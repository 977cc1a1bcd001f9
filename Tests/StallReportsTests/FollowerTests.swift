import Foundation
import Glibc
import StallReading
import StallReports
import TestSupport
import Testing

@Suite("Report follower", .timeLimit(.minutes(10)))
struct FollowerTests {
    private let directory = TemporaryDirectory()

    /// Fails a test that would otherwise wait forever; the machine may be slow.
    private static let patience = Duration.seconds(60)

    @Test("it returns existing files, oldest first, then new and changed ones, each version once")
    func follows() throws {
        try directory.store.prepare()
        let (old, run) = (Sample.recovered(), Sample.run())
        try directory.store.write(old)
        try directory.store.write(run)
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(old))
        #expect(try follower.next(timeout: Self.patience) == .run(run))
        #expect(try follower.next(timeout: .zero) == nil)

        var report = Sample.ongoing()
        try directory.store.write(report)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
        report.state = .recovered
        try directory.store.write(report)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
        #expect(try follower.next(timeout: .zero) == nil)
    }

    @Test("a copied file is reported when its writer closes it; other kinds of files are not reported")
    func copiedIn() throws {
        try directory.store.prepare()
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next() == .directoryAppeared)
        let report = Sample.recovered()
        directory.plant("x".utf8, as: "notes.json")
        directory.plant(try report.json(), as: ReportFileName(.stall, report.id).description)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
        let torn = ReportFileName(.stall, .make())
        directory.plant("{".utf8, as: torn.description)
        #expect(
            try follower.next(timeout: Self.patience) == .failure(ReportError(.torn, path: directory.file(torn)))
        )
    }

    @Test("it waits for a directory below missing ones, and finds what is in it")
    func appearsLater() throws {
        let path = directory.root + "/a/b/c/"
        var follower = try ReportFollower(path: path)
        #expect(try follower.next(timeout: .zero) == nil)
        let store = ReportDirectory(path: path)
        let report = Sample.recovered()
        try store.write(report)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
    }

    @Test("in a tree, a directory that appears later below a link is followed once")
    func appearsBelowLink() throws {
        let (place, link) = (directory.root + "/place", directory.root + "/link")
        try #require(unsafe mkdir(place, 0o700) == 0 && symlink(place, link) == 0)
        let path = link + "/reports"
        var follower = try TreeFollower([path], cancellation: Cancellation())
        #expect(try follower.next(timeout: .zero) == nil)
        try ReportDirectory(path: path).write(Sample.recovered())
        // The search that finds this one finds the other one again.
        try ReportDirectory(path: path + "/below").write(Sample.recovered())
        var appeared: [String] = []
        while appeared.last != path + "/below", let event = try follower.next(timeout: .seconds(120)) {
            if case .event(.directoryAppeared, let directory) = event { appeared.append(directory) }
        }
        #expect(appeared == [path, path + "/below"])
    }

    @Test("in a tree, a directory that came and went is followed again only when it has come again; a given one always")
    func comesAndGoes() throws {
        let (given, below) = (directory.root + "/given", directory.root + "/given/below")
        var follower = try TreeFollower([given], cancellation: Cancellation())
        func next() throws -> ReportFollower.Event? {
            while let event = try follower.next(timeout: Self.patience) {
                if case .event(let event, below) = event { return event }
            }
            return nil
        }
        for _ in 0..<2 {
            let report = Sample.recovered()
            try ReportDirectory(path: below).write(report)
            #expect(try next() == .directoryAppeared && next() == .report(report))
            #expect(follower.directories == [given, below])
            try FileManager.default.removeItem(atPath: given)
            #expect(try next() == .directoryGone)
            // Until the next search.
            let deadline = ContinuousClock.now + Self.patience
            while follower.directories != [given], ContinuousClock.now < deadline {
                _ = try follower.next(timeout: .milliseconds(100))
            }
            #expect(follower.directories == [given])
        }
    }

    @Test("in a tree, new directories are searched seldom if that is work, and soon if it was only held up")
    func searches() {
        #expect(TreeFollower.pause(afterSearchOf: .milliseconds(1), worked: .microseconds(900)) == .seconds(3))
        #expect(TreeFollower.pause(afterSearchOf: .milliseconds(600), worked: .milliseconds(500)) == .seconds(500))
        #expect(TreeFollower.pause(afterSearchOf: .milliseconds(100), worked: .milliseconds(1)) == .seconds(3))
        #expect(TreeFollower.pause(afterSearchOf: .seconds(3), worked: .milliseconds(1)) == .seconds(30))
        #expect(TreeFollower.pause(afterSearchOf: .seconds(3600), worked: .milliseconds(1)) == .seconds(600))
    }

    @Test("in a tree, a path that leads to another directory because a link above has changed is followed there")
    func leadsElsewhere() throws {
        let (old, new, link) = (directory.root + "/old", directory.root + "/new", directory.root + "/link")
        let (before, after, later) = (Sample.recovered(), Sample.recovered(), Sample.recovered())
        try ReportDirectory(path: old + "/reports").write(before)
        try ReportDirectory(path: new + "/reports").write(after)
        try #require(unsafe symlink(old, link) == 0)
        let path = link + "/reports"
        var follower = try TreeFollower([path], cancellation: Cancellation())
        var events: [ReportFollower.Event] = []
        while events.count < 2, case .event(let event, _)? = try follower.next(timeout: Self.patience) {
            events.append(event)
        }
        #expect(events == [.directoryAppeared, .report(before)])
        try #require(unsafe symlink(new, link + "-new") == 0 && rename(link + "-new", link) == 0)
        while events.count < 5, case .event(let event, _)? = try follower.next(timeout: Self.patience) {
            events.append(event)
        }
        #expect(events.dropFirst(2) == [.directoryGone, .directoryAppeared, .report(after)])
        try ReportDirectory(path: path).write(later)
        while events.count < 6, case .event(let event, _)? = try follower.next(timeout: Self.patience) {
            events.append(event)
        }
        #expect(events.last == .report(later))
    }

    @Test("in a tree, a path that leads to no directory any more is reported, and followed again like the others")
    func replacedByOther() throws {
        let (one, other) = (directory.root + "/one", directory.root + "/other")
        let (meanwhile, later) = (Sample.recovered(), Sample.recovered())
        try ReportDirectory(path: one).prepare()
        try ReportDirectory(path: other).prepare()
        var follower = try TreeFollower([one, other], cancellation: Cancellation())
        while try follower.next(timeout: .zero) != nil {}
        try #require(unsafe rmdir(one) == 0 && symlink("/dev/null", one) == 0)
        guard case .failure(let error)? = try follower.next(timeout: Self.patience) else {
            Issue.record("it is not reported")
            return
        }
        #expect(error.code == .notADirectory && error.path == one)
        try ReportDirectory(path: other).write(meanwhile)
        var events: [ReportFollower.Event] = []
        while events.count < 1, case .event(let event, _)? = try follower.next(timeout: Self.patience) {
            events.append(event)
        }
        try #require(unsafe unlink(one) == 0)
        try ReportDirectory(path: one).write(later)
        while events.count < 3, case .event(let event, _)? = try follower.next(timeout: Self.patience) {
            events.append(event)
        }
        #expect(events == [.report(meanwhile), .directoryAppeared, .report(later)])
    }

    @Test("levels that appear one by one, while it waits on another thread")
    func appearsStepByStep() async throws {
        let path = directory.root + "/a/b/c"
        var follower = try ReportFollower(path: path)
        for level in ["/a", "/a/b", "/a/b/c"] {
            #expect(try follower.next(timeout: .zero) == nil)
            try #require(unsafe mkdir(directory.root + level, 0o700) == 0)
        }
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
    }

    @Test("a directory moved into place counts as one that appears")
    func movedIntoPlace() throws {
        let report = Sample.recovered()
        let elsewhere = ReportDirectory(path: directory.root + "/elsewhere")
        try elsewhere.write(report)
        var follower = try ReportFollower(path: directory.path)
        try #require(unsafe rename(elsewhere.path, directory.path) == 0)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
    }

    @Test("a directory that is removed or moved away and created again is still followed")
    func removedAndMadeAgain() throws {
        try directory.store.prepare()
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        TemporaryDirectory.removeTree(directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryGone)
        let first = Sample.recovered()
        try directory.store.write(first)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(first))
        try #require(unsafe rename(directory.path, directory.path + ".old") == 0)
        #expect(try follower.next(timeout: Self.patience) == .directoryGone)
        // The same report, written again in the new directory, is reported again.
        try directory.store.write(first)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(first))
    }

    @Test("a directory that is moved away and back returns no version of a file twice")
    func movedAwayAndBack() throws {
        let (first, second) = (Sample.recovered(), Sample.recovered())
        try directory.store.write(first)
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(first))
        let aside = ReportDirectory(path: directory.path + ".old")
        try #require(unsafe rename(directory.path, aside.path) == 0)
        #expect(try follower.next(timeout: Self.patience) == .directoryGone)
        try aside.write(second)
        try #require(unsafe rename(aside.path, directory.path) == 0)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(second))
        #expect(try follower.next(timeout: .zero) == nil)
    }

    @Test("when the kernel drops events the directory is scanned, and nothing is missed")
    func overflow() throws {
        try directory.store.prepare()
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        let limit = try #require(Int(text(of: "/proc/sys/fs/inotify/max_queued_events")))
        // Two alternating names: the kernel merges equal consecutive events.
        for index in 0...limit { directory.plant("".utf8, as: index.isMultiple(of: 2) ? "even" : "odd") }
        let report = Sample.recovered()
        try directory.store.write(report)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
    }

    @Test("a directory that appears, or is replaced, while the kernel drops events is followed")
    func overflowBeside() throws {
        let limit = try #require(Int(text(of: "/proc/sys/fs/inotify/max_queued_events")))
        func flood(_ folder: String) throws {
            for index in 0...limit {
                let name = folder + (index.isMultiple(of: 2) ? "/even" : "/odd")
                try #require(unsafe mkdir(name, 0o700) == 0 && rmdir(name) == 0)
            }
        }
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: .zero) == nil)
        try flood(directory.root)
        try directory.store.prepare()
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)

        try flood(directory.path)
        try #require(unsafe rename(directory.path, directory.path + ".old") == 0)
        for report in [Sample.recovered(), Sample.recovered()] {
            try directory.store.write(report)
            #expect(try follower.next(timeout: Self.patience) == .report(report))
        }
        try flood(directory.path)
        TemporaryDirectory.removeTree(directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryGone)
    }

    @Test(
        "from now on: existing files are not read, later ones are returned, even if the kernel drops events"
    )
    func fromNowOn() throws {
        let old = (0..<3).map { _ in Sample.recovered() }
        for report in old { try directory.store.write(report) }
        directory.plant("{".utf8, as: "\(ReportFileName(.stall, .make()))")
        for name in try directory.reader.names() { directory.age("\(name)", bySeconds: 60) }
        var follower = try ReportFollower(path: directory.path, includesPast: false)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: .zero) == nil)
        let limit = try #require(Int(text(of: "/proc/sys/fs/inotify/max_queued_events")))
        for index in 0...limit { directory.plant("".utf8, as: index.isMultiple(of: 2) ? "even" : "odd") }
        let new = Sample.recovered()
        try directory.store.write(new)
        #expect(try follower.next(timeout: Self.patience) == .report(new))
        #expect(try follower.next(timeout: .zero) == nil)
        // An old file that is written again is returned.
        try directory.store.write(old[0])
        #expect(try follower.next(timeout: Self.patience) == .report(old[0]))
    }

    @Test("a stall whose process is killed is reported again as terminated, without any event in the directory")
    func killedProcess() throws {
        try directory.store.prepare()
        let child = try ChildProcess()
        var report = Sample.ongoing(process: try child.identity())
        try directory.store.write(report)
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        #expect(try follower.next(timeout: Self.patience) == .report(report))
        #expect(try follower.next(timeout: .milliseconds(1)) == nil)
        child.killLeavingZombie()
        report.state = .terminated
        report.durationMinNs = report.durationNs
        #expect(try follower.next(timeout: Self.patience) == .report(report))
        #expect(try follower.next(timeout: .zero) == nil)
    }

    @Test(
        "a file that cannot be opened for a reason that passes is returned when it has passed",
        .enabled(if: Lease.isPermitted, "the file system of /dev/shm has no leases")
    )
    func passingError() throws {
        let report = Sample.recovered()
        try directory.store.write(report)
        let file = directory.file(ReportFileName(.stall, report.id))
        let lease = try #require(Lease(on: file))
        var follower = try ReportFollower(path: directory.path)
        #expect(try follower.next(timeout: Self.patience) == .directoryAppeared)
        let error = ReportError(.io, path: file, errorNumber: EAGAIN)
        #expect(try follower.next(timeout: Self.patience) == .failure(error))
        #expect(try follower.next(timeout: .zero) == nil)
        lease.end()
        #expect(try follower.next(timeout: Self.patience) == .report(report))
        #expect(try follower.next(timeout: .zero) == nil)
    }

    @Test(
        "an ongoing stall whose file cannot be opened for a while is still known: its end is returned",
        .enabled(if: Lease.isPermitted, "the file system of /dev/shm has no leases")
    )
    func passingErrorOfOngoingStall() throws {
        try directory.store.prepare()
        let child = try ChildProcess()
        let report = Sample.ongoing(process: try child.identity())
        try directory.store.write(report)
        let lease = try #require(Lease(on: directory.file(ReportFileName(.stall, report.id))))
        let documents = StoredDocuments(path: directory.path)
        #expect(documents.presentState(of: report) == report)
        lease.end()
        child.killLeavingZombie()
        #expect(documents.presentState(of: report)?.state == .terminated)
    }

    @Test("cancelling from another thread ends the wait, and every later one")
    func cancels() throws {
        var follower = try ReportFollower(path: directory.path)
        let cancellation = follower.cancellation
        // A thread, not a task: the wait below blocks one of the threads of the task pool.
        Thread { cancellation.cancel() }.start()
        #expect(throws: ReportError(.cancelled)) { try follower.next() }
        #expect(throws: ReportError(.cancelled)) { try follower.next(timeout: .zero) }
    }

    @Test("a file in place of the directory is an error at once")
    func notADirectory() throws {
        try directory.store.prepare()
        directory.plant("".utf8, as: "file")
        let path = directory.path + "/file"
        let error = #expect(throws: ReportError.self) { _ = try ReportFollower(path: path) }
        #expect(error?.code == .notADirectory)
    }

    @Test("it leaves no descriptor behind")
    func descriptors() throws {
        for _ in 0..<200 { _ = try ReportFollower(path: directory.root) }
        let open = TemporaryDirectory.names(in: "/proc/self/fd")
            .filter { TemporaryDirectory.link("/proc/self/fd/\($0)") == "anon_inode:inotify" }
        #expect(open.count < 50, "other tests of this suite hold a few")
    }

    private func text(of path: String) -> String {
        var buffer = [UInt8](repeating: 0, count: 64)
        let descriptor = unsafe open(path, O_RDONLY)
        defer { close(descriptor) }
        let count = unsafe read(descriptor, &buffer, buffer.count)
        return String(decoding: buffer[..<max(0, count - 1)], as: UTF8.self)
    }
}
