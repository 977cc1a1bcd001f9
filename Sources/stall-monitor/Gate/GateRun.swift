import Glibc
import ProcessWatch
import RunLoopKit
import StackCapture
import StallMonitor
import StallReports

/// One run of a command that is judged: its own monitors report into a directory, and from outside its processes are watched until one of
/// them does.
struct GateRun {
    enum Ending: Hashable {
        /// With the command's exit status, as a shell has it.
        case ended(Int32)
        case interrupted
    }

    private let signals: WatchSignals
    private let child: StartedCommand
    private let watcher: ProcessWatch
    private let desk: OutsideReporter
    private let start = MonotonicInstant.now
    private let grace: Duration
    /// Of the monitors in the command's processes; and of what was seen from outside.
    private let (own, outside): (ReportReader, ReportReader)

    /// Starts it.
    ///
    /// - Parameter folder: fresh, and this run's own.
    init(_ command: [String], _ folder: String, warmUp: Int64, _ signals: WatchSignals) throws {
        self.signals = signals
        own = ReportReader(path: "\(folder)/inside")
        outside = ReportReader(path: "\(folder)/outside")
        grace = max(.seconds(1), .nanoseconds(warmUp))
        // No other thread is there yet, or any more.
        unsafe setenv(ReportDirectory.environmentVariable, own.path, 1)
        if warmUp > 0 { unsafe setenv("STALL_MONITOR_STARTUP_GRACE_MILLISECONDS", "\(warmUp / 1_000_000)", 1) }
        do throws(StartError) {
            child = try StartedCommand(command)
        } catch {
            throw CommandFailure("\(command[0]): \(error)")
        }
        let watching = WatchOptions(followsChildren: true)
        let rule = StallRule(tick: watching.tick, ticks: watching.ticks)
        desk = try OutsideReporter(.init(directory: outside.path, rule: rule)) { event in
            if case .fault(let error) = event { Output.note(error.message) }
        }
        watcher = ProcessWatch(watching, desk) { note in
            if case .unarmed(let problem) = note { Output.note(problem) }
        }
    }

    /// Waits until it has ended, or somebody ends it.
    func finish() -> Ending {
        var (isWatched, isLeft, looks) = (false, false, 0)
        let ending = loop {
            looks += 1
            if !isLeft, looks % 20 == 0 || !isWatched, MonotonicInstant.now - start >= .milliseconds(500), hasOwnMonitor
            {
                watcher.end()
                isLeft = true
            }
            if !isLeft, !isWatched, MonotonicInstant.now - start >= grace {
                isWatched = true
                do throws(CaptureError) {
                    try watcher.add(child.processID)
                } catch {
                    Output.note("the command runs, but cannot be watched from outside: \(error)")
                }
            }
        }
        if !isLeft { watcher.end() }
        desk.close()
        return ending
    }

    private func loop(_ eachLook: () -> Void) -> Ending {
        var isInterrupted = false
        while true {
            watcher.wait([signals.descriptor])
            while let signal = signals.take() {
                child.pass(on: signal)
                if signal.number == SIGINT { isInterrupted = true }
            }
            let status = child.takeStatus()
            watcher.look()
            if let status { return isInterrupted ? .interrupted : .ended(status) }
            eachLook()
        }
    }

    private var hasOwnMonitor: Bool { ((try? own.names()) ?? []).contains { $0.content == .run } }

    /// What there is to judge: what the command's own monitors wrote, or else what was seen from outside.
    func overview() throws(CommandFailure) -> ReportReader.Overview {
        let reader = hasOwnMonitor ? own : outside
        return try CommandFailure.wrapping { () throws(ReportError) in try reader.overview() }
    }
}

/// A folder with one for each run in it.
final class RunFolder {
    let path: String
    private var runs = 0

    /// - Parameter keep: one that is empty or not there; nil for a temporary one.
    init(_ keep: String?) throws(CommandFailure) {
        guard let keep else {
            let place = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
            var name = Array("\(place)/stall-gate-XXXXXX".utf8CString)
            guard unsafe mkdtemp(&name) != nil else {
                throw unsafe CommandFailure("no temporary folder in \(place): \(String(cString: strerror(errno)))")
            }
            path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
            return
        }
        path = keep
        if unsafe mkdir(keep, 0o700) == 0 { return }
        guard errno == EEXIST, BaselineFile.isFolder(keep) else {
            throw unsafe CommandFailure("--keep \(keep): \(String(cString: strerror(errno)))")
        }
        guard Self.names(in: keep).isEmpty else {
            throw CommandFailure(
                "--keep \(keep): there is something in it already; give an empty folder, or a new name"
            )
        }
    }

    /// The next run's, made.
    func next() throws(CommandFailure) -> String {
        runs += 1
        let folder = "\(path)/run-\(runs)"
        guard unsafe mkdir(folder, 0o700) == 0 else {
            throw unsafe CommandFailure("\(folder): \(String(cString: strerror(errno)))")
        }
        return folder
    }

    /// Takes away what the runs have left. What somebody else put beside their reports stays.
    func remove() {
        for run in 1...max(1, runs) {
            for kind in ["inside", "outside"] {
                let folder = "\(path)/run-\(run)/\(kind)"
                for name in Self.names(in: folder) { unsafe _ = unlink("\(folder)/\(name)") }
                unsafe _ = rmdir(folder)
            }
            unsafe _ = rmdir("\(path)/run-\(run)")
        }
        unsafe _ = rmdir(path)
    }

    static func names(in path: String) -> [String] {
        guard let folder = unsafe opendir(path) else { return [] }
        defer { unsafe _ = closedir(folder) }
        var names: [String] = []
        while let entry = unsafe readdir(folder) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                unsafe pointer.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }
}
