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
