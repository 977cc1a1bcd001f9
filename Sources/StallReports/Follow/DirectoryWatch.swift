internal import Glibc

/// Watches a directory by its path, whether or not it is there: while it is not, its nearest ancestor that is.
struct DirectoryWatch: ~Copyable {
    /// What became known.
    enum Change: Hashable {
        /// The directory is there, and may hold anything.
        case appeared
        case gone
        /// A file is complete: renamed to this name, or closed by its writer.
        case written(String)
        case removed(String)
        /// News was lost.
        case lost
    }

    private enum Target {
        case nothing
        case directory(watch: Int32)
        /// `child` is the next component on the way to the directory.
        case ancestor(watch: Int32, child: String)
    }

    private let path: String
    private let inotify: Inotify
    private var target = Target.nothing

    var descriptor: Int32 { inotify.descriptor }

    init(path: String) throws(ReportError) {
        self.path = path
        inotify = try Inotify()
    }

    /// Begins, or begins again: true if the directory is there.
    mutating func arm() throws(ReportError) -> Bool {
        var appeared = false
        repeat {
            disarm()
            if let watch = try watchDirectory() {
                target = .directory(watch: watch)
                return true
            }
            let child = try watchNearestAncestor()
            // What appeared between the two looks gives no event.
            appeared = unsafe access(child, F_OK) == 0
        } while appeared
        return false
    }

    /// Reads what happened, without waiting.
    mutating func changes() throws(ReportError) -> [Change] {
        var changes: [Change] = []
        for event in try inotify.events() {
            if event.has(IN_Q_OVERFLOW) {
                changes.append(.lost)
            } else if case .directory(event.watch) = target {
                try handle(event, into: &changes)
            } else if case .ancestor(event.watch, let child) = target, event.name.isEmpty || event.name == child {
                if try arm() { changes.append(.appeared) }
            }
        }
        return changes
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

    /// The nearest ancestor there is becomes the target. Returns the path below it that is missing.
    private mutating func watchNearestAncestor() throws(ReportError) -> String {
        var child = path
        while let ancestor = OpenDirectory.parent(of: child) {
            do throws(ReportError) {
                let watch = try inotify.watch(ancestor, for: IN_CREATE, IN_MOVED_TO, IN_DELETE_SELF, IN_MOVE_SELF)
                target = .ancestor(watch: watch, child: OpenDirectory.lastComponent(of: child))
                return child
            } catch let error where error.code == .missingFile {
                child = ancestor
            }
        }
        throw ReportError(.missingDirectory, path: path)
    }
}

/// The kernel's news about directories (inotify(7)). One thread at a time.
struct Inotify: ~Copyable {
    /// One piece of news.
    struct Event {
        let watch: Int32
        let mask: UInt32
        /// The name in the watched directory; empty for news about the directory itself.
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

    /// Watches a directory; throws what opening it would.
    func watch(_ path: String, for flags: Int32...) throws(ReportError) -> Int32 {
        let mask = flags.reduce(UInt32(IN_ONLYDIR)) { $0 | UInt32(bitPattern: $1) }
        do throws(ReportError) {
            return try systemCall(path: path) { unsafe inotify_add_watch(descriptor, path, mask) }
        } catch let error where error.errorNumber == ENOSPC {
            throw ReportError(.io, path: path, detail: "raise fs.inotify.max_user_watches", errorNumber: ENOSPC)
        }
    }

    /// A watch that the kernel has removed already is no error.
    func unwatch(_ watch: Int32) { inotify_rm_watch(descriptor, watch) }

    /// What is there to read now, perhaps nothing.
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

    /// A record is watch, mask, cookie and the length of the name, 32 bits each; then the name, filled up with zeros.
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
