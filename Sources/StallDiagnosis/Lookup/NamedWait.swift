import Glibc
import StackCapture
package import StallReports

/// What a thread waits for, if the functions on its stack show more than its system call.
package enum NamedWait: Hashable, Sendable {
    /// SQLite sleeps and tries again, because another connection has locked the database (sqlite3_busy_handler).
    case sqliteBusy
    /// Foundation's `Process.waitUntilExit`: a run loop that waits on its own descriptor.
    case processExit

    /// Determined from the stack in which the stalled thread was found for longest. Nil if the thread ran there.
    package init?(_ stacks: [StallReport.Stack], _ modules: [StallReport.Module]) {
        let stalled = stacks.filter { $0.role == .stalled }
        guard let stack = stalled.max(by: { ($0.sampledNs ?? 0) < ($1.sampledNs ?? 0) }), stack.method == .quiet else {
            return nil
        }
        let names = stack.frames.compactMap { $0.symbol ?? $0.function }
        if names.contains(where: Self.isBusyHandler) || Self.sleepsInSQLite(stack.frames, modules) {
            self = .sqliteBusy
        } else if names.contains(Self.waitUntilExit) {
            self = .processExit
        } else {
            return nil
        }
    }

    private static func isBusyHandler(_ name: String) -> Bool {
        ["sqlite3InvokeBusyHandler", "btreeInvokeBusyHandler", "sqliteDefaultBusyCallback"].contains(name)
    }

    private static let waitUntilExit = "$s10Foundation7ProcessC13waitUntilExityyF"

    /// Whether it sleeps in a library whose functions have no names: SQLite sleeps for no other reason than a lock.
    private static func sleepsInSQLite(_ frames: [StallReport.Frame], _ modules: [StallReport.Module]) -> Bool {
        let calls = frames.prefix(4).map { frame in
            (name: frame.symbol ?? frame.function ?? "", path: modules.module(of: frame)?.path ?? "")
        }
        guard let outside = calls.firstIndex(where: { !$0.path.isFile(of: "libc") }), outside > 0 else { return false }
        return calls[outside].path.isFile(of: "libsqlite3") && calls[..<outside].contains { $0.name.contains("sleep") }
    }

    /// Finds out what it waits for. Call it while the thread still waits, on a thread that may wait.
    package func find(in process: ObservedProcess = .own) -> Finding {
        switch self {
        case .sqliteBusy: Finding(wait: self, databases: LockedDatabase.find(in: process))
        case .processExit: Finding(wait: self, children: ChildProcesses.alive(of: process))
        }
    }

    /// What was found.
    package struct Finding: Hashable, Sendable {
        package var wait: NamedWait
        package var databases: [LockedDatabase] = []
        package var children: [StallReport.ProcessName] = []

        package init(wait: NamedWait, databases: [LockedDatabase] = [], children: [StallReport.ProcessName] = []) {
            (self.wait, self.databases, self.children) = (wait, databases, children)
        }

        /// - Parameter site: Where the thread was asleep.
        package func sentence(_ site: WaitSite?) -> String {
            switch wait {
            case .sqliteBusy:
                let call = site?.call.name.map { ", asleep in \($0)(2) between its tries" } ?? ""
                guard let database = databases.first, databases.count == 1 else {
                    return "The thread waited for a SQLite database that somebody else has locked\(call)."
                }
                return "The thread waited for the SQLite database \(database.path), \(database.holding)\(call)."
            case .processExit:
                let one = children.count == 1 ? "process \(children[0].text)" : "a child process"
                let others = children.count > 1 ? ": one of \(children.map(\.text).joined(separator: ", "))" : ""
                return "The thread waited for \(one) to end, in Process.waitUntilExit\(others)."
            }
        }
    }
}

/// A SQLite database that the process has open and that is locked, by the kernel's list of all locks.
package struct LockedDatabase: Hashable, Sendable {
    package var path: String
    package var descriptor: Int32
    /// Nil if it is the process itself: another of its connections holds the lock.
    package var holder: StallReport.ProcessName?
    /// The process that has it open.
    package var owner = ObservedProcess.own.processID

    package var holding: String {
        holder.map { "which process \($0.text) has locked" } ?? "which another connection of this process has locked"
    }

    /// The form that reports have.
    package var reportedDescriptor: StallReport.Descriptor {
        .init(number: descriptor, kind: .file, target: path, holder: holder ?? .named(owner))
    }

    /// The databases with the best evidence, each once: first choice is a database to which another process writes, then one that
    /// another process reads, then one to which this process writes.
    package static func find(in process: ObservedProcess = .own) -> [LockedDatabase] {
        guard let table = readFile("/proc/locks", limit: 1 << 20) else { return [] }
        let locks = FileLocks(table)
        var found: [(rank: Int, database: LockedDatabase)] = []
        let own = process.processID
        for number in readProcNumbers(process.livingDirectory + "/fd") ?? [] {
            guard let link = DescriptorReading.link(of: number, in: process), link.hasPrefix("/"),
                let file = regularFile("\(process.livingDirectory)/fd/\(number)"),
                let lock = locks.database(file, isIndex: link.hasSuffix(indexSuffix), self: own)
            else { continue }
            let path = link.hasSuffix(indexSuffix) ? String(link.dropLast(indexSuffix.count)) : link
            guard !found.contains(where: { $0.database.path == path && $0.rank <= lock.rank }) else { continue }
            found.removeAll { $0.database.path == path }
            let holder = lock.pid == own ? nil : StallReport.ProcessName.named(lock.pid)
            found.append((lock.rank, .init(path: path, descriptor: number, holder: holder, owner: own)))
        }
        let best = found.map(\.rank).min()
        return found.filter { $0.rank == best }.map(\.database)
    }

    /// For a database with a write-ahead log, the locks are in the index beside it.
    private static let indexSuffix = "-shm"

    private static func regularFile(_ path: String) -> FileLocks.File? {
        var status = stat()
        guard unsafe stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        return FileLocks.File(status)
    }
}

/// The children of a process.
package enum ChildProcesses {
    /// Their numbers, by the kernel's list (proc(5), `children`). Empty without such a list.
    package static func numbers(of process: ObservedProcess) -> [Int32] {
        let tasks = process.directory + "/task"
        return (readProcNumbers(tasks) ?? []).flatMap { task -> [Int32] in
            let list = readFile("\(tasks)/\(task)/children", limit: 1 << 20) ?? ""
            return list.split(separator: " ").compactMap { Int32($0) }
        }
    }

    /// The children that have not ended.
    package static func alive(of process: ObservedProcess = .own) -> [StallReport.ProcessName] {
        numbers(of: process).sorted().filter { !hasEnded($0) }.map(StallReport.ProcessName.named)
    }

    private static func hasEnded(_ pid: Int32) -> Bool { ProcessStat(pid: pid)?.hasEnded ?? true }
}

extension String {
    /// Whether it is the path of a version of the library.
    fileprivate func isFile(of library: String) -> Bool {
        let name = fileName(ofPath: self)
        return name.hasPrefix(library + ".so") || name.hasPrefix(library + "-")
    }
}
