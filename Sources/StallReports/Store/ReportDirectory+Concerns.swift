internal import Glibc

extension ReportDirectory {
    /// A problem of a report directory that does not prevent writing.
    ///
    /// ssh refuses a key that others can write to. A report directory with that problem is only reported, once: refusing it
    /// would lose the server's reports, and in a container it is the rule, not the exception, because volumes have mode 0777
    /// (an emptyDir) or belong to another user. What others can do there is limited: nothing in the directory can end or delay
    /// the monitor or make it write elsewhere, and it removes no report of its own because of their files. They can still
    /// remove or forge reports, which a person has to know.
    package enum Concern: String, Hashable, Sendable, CaseIterable {
        /// The path is a symbolic link: anyone who can change it decides where reports go. Links further up, as in /var/run,
        /// are the system's.
        case link
        /// Others may remove and replace its contents: it belongs to neither root nor us, or its group or everyone may write to
        /// it. A sticky directory like /tmp is accepted: others can add files, which do not count, and can remove none of ours.
        case openToOthers = "open_to_others"
        /// Files that this run did not write and may not remove exceed the limits.
        case filled

        /// The meaning, and the remedy.
        package func advice(for path: String) -> String {
            switch self {
            case .link:
                "\(path) is a symbolic link, and whoever can change it decides where reports go; "
                    + "name the directory it leads to."
            case .openToOthers:
                "\(path) belongs to another user, or others may write there, so they can remove and forge reports; "
                    + "take that right away (chmod go-w), or name a directory below it, which is then made with mode 0700."
            case .filled:
                "\(path) holds more than its limits allow that this run may not remove: files of other kinds or users, or "
                    + "of processes that live; find out who writes them, or give this server a directory of its own."
            }
        }
    }

    /// The current problems of the directory itself. Empty if it cannot be inspected: the next write reports the reason.
    package var exposures: Set<Concern> {
        var concerns: Set<Concern> = []
        var link = stat()
        var plain = path
        while plain.utf8.count > 1, plain.hasSuffix("/") { plain.removeLast() }
        if unsafe lstat(plain, &link) == 0, link.st_mode & S_IFMT == S_IFLNK { concerns.insert(.link) }
        if let status = try? OpenDirectory(path: path).status() {
            let isWritable = status.mode & 0o022 != 0 && status.mode & 0o1000 == 0
            if isWritable || ![0, geteuid()].contains(status.owner) { concerns.insert(.openToOthers) }
        }
        return concerns
    }
}
