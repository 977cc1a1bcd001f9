import Glibc
import StallReports

/// Watches a directory by its path. While the directory does not exist, its nearest existing ancestor is watched.
struct DirectoryWatch: ~Copyable {
    /// What has changed.
    enum Change: Hashable {
        /// The directory exists now. Its contents are not known.
        case appeared
        /// The directory was removed or renamed.
        case gone
        /// A file is complete: renamed to this name, or closed by its writer.
        case written(String)
        /// A file with this name was removed or renamed.
        case removed(String)
        /// The kernel has dropped events about the directory's contents.
        case lost
    }

    private enum Target {
        case nothing
        case directory(watch: Int32)
        /// `child` is the next component of the path to the directory.
        case ancestor(watch: Int32, child: String)
    }

    private let path: String
    private let inotify: Inotify
    private var target: Target

    var descriptor: Int32 { inotify.descriptor }

    init(path: String) throws(ReportError) {
        // First what can fail: if it does, Swift 6.2 destroys twice what has been initialized before.
        inotify = try Inotify()
        (self.path, target) = (path, .nothing)
    }

    /// Starts watching, or starts again. Returns whether the directory exists.
    mutating func arm() throws(ReportError) -> Bool {
        var appeared = false
        repeat {
            disarm()
            if let watch = try watchDirectory() {
                target = .directory(watch: watch)
                return true
            }
            let child = try watchNearestAncestor()
            // If the child appeared between the two calls, there is no event for it.
            appeared = unsafe access(child, F_OK) == 0
        } while appeared
        return false
    }

    /// Returns the changes since the last call. Does not wait.
    mutating func changes() throws(ReportError) -> [Change] {
        var changes: [Change] = []
        for event in try inotify.events() {
            if event.has(IN_Q_OVERFLOW) {
                try recover(into: &changes)
            } else if case .directory(event.watch) = target {
                try handle(event, into: &changes)
            } else if case .ancestor(event.watch, let child) = target, event.name.isEmpty || event.name == child {
                if try arm() { changes.append(.appeared) }
            }
        }
        return changes
    }

    /// Returns changes for which the kernel sends no event: the path leads to another directory than before, because one above was renamed
    /// or a link was changed.
    mutating func changesOfPath() throws(ReportError) -> [Change] {
        guard case .directory(let watch) = target else { return try arm() ? [.appeared] : [] }
        // The same directory gets the same watch.
        if try watchDirectory() == watch { return [] }
        return try arm() ? [.gone, .appeared] : [.gone]
    }

    /// Among the dropped events may be that the directory has appeared, gone or been replaced: it is watched anew.
    private mutating func recover(into changes: inout [Change]) throws(ReportError) {
        let wasThere = if case .directory = target { true } else { false }
        switch (wasThere, try arm()) {
        case (true, true): changes.append(.lost)
        case (true, false): changes.append(.gone)
        case (false, true): changes.append(.appeared)
        case (false, false): break
        }
    }

    private mutating func handle(_ event: Inotify.Event, into changes: inout [Change]) throws(ReportError) {
        if event.has(IN_DELETE_SELF, IN_MOVE_SELF, IN_IGNORED, IN_UNMOUNT) {
            changes.append(.gone)
            if try arm() { changes.append(.appeared) }
        } else if event.has(IN_DELETE, IN_MOVED_FROM) {
            changes.append(.removed(event.name))
        } else {
            changes.append(.written(event.name))
        }
    }

    private mutating func disarm() {
        switch target {
        case .nothing: break
        case .directory(let watch), .ancestor(let watch, _): inotify.unwatch(watch)
        }
        target = .nothing
    }

    private func watchDirectory() throws(ReportError) -> Int32? {
        do throws(ReportError) {
            return try inotify.watch(
                path,
                for: IN_CLOSE_WRITE,
                IN_MOVED_TO,
                IN_DELETE,
                IN_MOVED_FROM,
                IN_DELETE_SELF,
                IN_MOVE_SELF
            )
        } catch let error where error.code == .missingFile {
            return nil
        }
    }

    /// Watches the nearest existing ancestor. Returns the path of its child that is missing.
    private mutating func watchNearestAncestor() throws(ReportError) -> String {
        var child = path
        while let ancestor = OpenDirectory.parent(of: child) {
            do throws(ReportError) {
                let watch = try inotify.watch(ancestor, for: IN_CREATE, IN_MOVED_TO, IN_DELETE_SELF, IN_MOVE_SELF)
                target = .ancestor(watch: watch, child: fileName(ofPath: child))
                return child
            } catch let error where error.code == .missingFile {
                child = ancestor
            }
        }
        throw ReportError(.missingDirectory, path: path)
    }
}

/// The kernel's events about directories (inotify(7)). One thread at a time.
struct Inotify: ~Copyable {
    /// One event.
    struct Event {
        let watch: Int32
        let mask: UInt32
        /// The name in the watched directory. Empty if the event is about the directory itself.
        let name: String

        func has(_ flags: Int32...) -> Bool { flags.contains { mask & UInt32(bitPattern: $0) != 0 } }
    }

    private let file: OpenFile

    var descriptor: Int32 { file.descriptor }

    init() throws(ReportError) {
        do throws(ReportError) {
            let flags = Int32(IN_NONBLOCK | IN_CLOEXEC)
            file = OpenFile(owning: try systemCall(path: nil) { inotify_init1(flags) }, path: "inotify")
        } catch let error where error.errorNumber == EMFILE {
            throw ReportError(.io, detail: "raise fs.inotify.max_user_instances", errorNumber: EMFILE)
        }
    }

    /// Watches a directory. Throws the same errors as opening it.
    func watch(_ path: String, for flags: Int32...) throws(ReportError) -> Int32 {
        let mask = flags.reduce(UInt32(IN_ONLYDIR)) { $0 | UInt32(bitPattern: $1) }
        do throws(ReportError) {
            return try systemCall(path: path) { unsafe inotify_add_watch(descriptor, path, mask) }
        } catch let error where error.errorNumber == ENOSPC {
            throw ReportError(.io, path: path, detail: "raise fs.inotify.max_user_watches", errorNumber: ENOSPC)
        }
    }

    /// Removes a watch. It is not an error if the kernel has removed it already.
    func unwatch(_ watch: Int32) { inotify_rm_watch(descriptor, watch) }

    /// The events that can be read now. May be empty.
    func events() throws(ReportError) -> [Event] {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        do throws(ReportError) {
            let count = try systemCall(path: nil) {
                unsafe buffer.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress, $0.count) }
            }
            return Self.parse(buffer[..<count])
        } catch let error where error.errorNumber == EAGAIN {
            return []
        }
    }

    /// A record consists of watch, mask, cookie and length of the name, 32 bits each; then the name, padded with zeros.
    private static func parse(_ bytes: ArraySlice<UInt8>) -> [Event] {
        var events: [Event] = []
        var rest = bytes
        while rest.count >= 16 {
            let words = unsafe rest.withUnsafeBytes { raw in
                (0..<4).map { unsafe raw.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self) }
            }
            let name = rest.dropFirst(16).prefix(Int(words[3]))
            let text = String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
            events.append(Event(watch: Int32(bitPattern: words[0]), mask: words[1], name: text))
            rest = rest.dropFirst(16 + Int(words[3]))
        }
        return events
    }
}
