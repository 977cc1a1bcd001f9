import RunLoopKit
import StallReports

/// What people call a watched thing.
struct WatchName: Hashable, Sendable {
    var type: WatchedType
    var label: String
}

/// One watch among others, of things that may be called the same.
struct WatchIdentity: Hashable, Sendable {
    var number: Int
    var name: WatchName
    /// When it was asked for.
    var since: MonotonicInstant
}

/// Who reports: the same in every report of one run.
struct RunIdentity: Sendable {
    let id: ULID
    let host: HostIdentity
    let service: ServiceIdentity
    let process: ProcessIdentity
    let startedAt: Timestamp

    /// The calling process. `service` nil: it is called what its executable is called.
    init(service: ServiceIdentity?) {
        id = .make()
        host = .current()
        process = .current()
        startedAt = .now()
        let executable = process.executable?.split(separator: "/").last.map(String.init)
        self.service = service ?? ServiceIdentity(name: executable ?? "unknown")
    }
}
