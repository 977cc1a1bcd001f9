internal import Glibc

extension ReportDirectory {
    /// What is wrong with a report directory that is written all the same.
    ///
    /// A key that others can write to is refused by ssh. A report directory that they can is told, once: to refuse it would lose the
    /// server's reports, and in a container it is the rule, not the exception, for volumes come with mode 0777 (an emptyDir) or belong to
    /// another user. What others can do there is bounded: nothing that stands in it ends, holds up or makes the monitor write elsewhere,
    /// and it removes no report of its own for theirs. What remains is that they can remove or forge reports, and that is for a
    /// person to know.
    package enum Concern: String, Hashable, Sendable, CaseIterable {
        /// The path is a symbolic link: where reports go is up to whoever can change it. Links further up, as in /var/run, are the system's.
        case link
        /// Others may remove and replace what is in it: it belongs to neither root nor us, or is writable for its group or for all. A sticky
        /// one is in order, like /tmp: others can add files, which count for nothing, and remove none of ours.
        case openToOthers = "open_to_others"
        /// What this run did not write, and may not remove, is more than the limits are.
        case filled

        /// What it means, and what to do.
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

    /// What is wrong with the directory itself, as it is now. Nothing if it cannot be looked at: the next write tells why.
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
