import CDiskFaults
import Glibc
import RunLoopKit
import StallMonitor
import StallReading
import StallReports
import Synchronization

/// A monitored loop, its stalls, and the events about them.
struct Scene {
    let root: String
    let worker: WorkerThread
    let events = EventList()
    var keepsLiveRecord = true
    var disk: String { root + "/disk" }
    var reports: String { disk + "/reports" }

    init(root: String) {
        // Called before other threads exist: mount namespaces are per thread.
        _ = disk_own_mounts()
        self.root = root
        guard let worker = try? WorkerThread(name: "worker") else { fatalError("no thread") }
        self.worker = worker
        unsafe mkdir(root + "/disk", 0o700)
    }

    func start() -> StallMonitor {
        var configuration = StallMonitor.Configuration(
            directory: reports,
            rule: StallRule(tick: .milliseconds(10), ticks: 5),
            repeats: .everyStall
        )
        configuration.keepsLiveRecord = keepsLiveRecord
        return StallMonitor.start(configuration, watching: [worker.loop], onEvent: events.add)
    }

    /// Stalls until this number of stalls has been reported: on a loaded machine a late watchdog may rightly report nothing.
    func stall(_ times: Int = 1) {
        let wanted = events.ended.count + times
        while events.ended.count < wanted {
            let before = events.ended.count
            _ = try? worker.loop.performAndWait { usleep(150_000) }
            for _ in 0..<500 where events.ended.count == before { usleep(10_000) }
        }
    }

    /// Reports whose end was reported and that are not stored as final on the disk.
    var missing: Int {
        let written = (try? ReportReader(path: reports).contents())?.reports ?? []
        let final = Set(written.filter { $0.state != .ongoing }.map(\.id))
        return events.ended.count { !final.contains($0.id) }
    }

    /// Draft files that no writer has open, and that stay: a writer locks its draft only after it has made it.
    var drafts: Int {
        var count = 0
        events.wait { _ in
            count = names(in: reports).count { $0.hasPrefix(".draft") && isClosed(reports + "/" + $0) }
            return count == 0
        }
        return count
    }

    /// Waits until the writer is idle: the last document that the reporter writes about a stall is the run record,
    /// which it writes after it has reported the end.
    func settle() {
        events.wait { events in
            guard let run, let end = events.lastEnd else { return false }
            return run.updatedAt >= end && isClosed(reports + "/\(ReportFileName(.run, run.id))")
        }
    }

    /// Whether the file exists and its writer has closed it: the writer
    /// holds the file's lock (flock(2)) while it has the file open.
    private func isClosed(_ path: String) -> Bool {
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return false }
        defer { close(file) }
        return flock(file, LOCK_EX | LOCK_NB) == 0
    }

    /// All names in a directory, without `.` and `..`.
    func names(in path: String) -> [String] {
        guard let stream = unsafe opendir(path) else { return [] }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if name != "." && name != ".." { names.append(name) }
        }
        return names
    }

    var run: RunRecord? { (try? ReportReader(path: reports).contents())?.runs.first }
}

/// The events that the monitor has reported, with a function to wait for them.
final class EventList: Sendable {
    private let list = Mutex<[StallEvent]>([])
    private let end = Mutex<Timestamp?>(nil)

    @Sendable func add(_ event: StallEvent) {
        if case .ended = event { end.withLock { $0 = .now() } }
        list.withLock { $0.append(event) }
    }

    /// The time at which the last stall's end was reported.
    var lastEnd: Timestamp? { end.withLock { $0 } }

    var ended: [StallReport] {
        list.withLock { $0.compactMap { if case .ended(let report) = $0 { report } else { nil } } }
    }
    /// The faults and recoveries, in order, as text.
    var troubles: [String] {
        list.withLock { events in
            events.compactMap { event in
                switch event {
                case .fault(let error): Self.word(error.code)
                case .mended(let error): "mended " + Self.word(error.code)
                default: nil
                }
            }
        }
    }

    /// Checks every 10 ms; gives up after a minute.
    func wait(until condition: (EventList) -> Bool) {
        for _ in 0..<6000 {
            if condition(self) { return }
            usleep(10_000)
        }
        print("waited in vain: \(troubles), \(ended.count) ended")
    }

    private static func word(_ code: StallMonitorError.Code) -> String {
        switch code {
        case .reportNotWritten: "refused"
        case .reportDirectoryHangs: "hangs"
        case .reportsLost: "lost"
        case .captureUnavailable: "no captures"
        default: "another fault"
        }
    }
}
