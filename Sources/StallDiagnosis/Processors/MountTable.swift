/// What is mounted where, from `/proc/self/mountinfo` (proc(5)). Pure.
struct MountTable: Hashable, Sendable {
    struct Mount: Hashable, Sendable {
        package var id: Int
        /// The directory of the file system that shows.
        var root: String
        /// Where it shows.
        package var point: String
        /// `ext4`, `nfs4`, `fuse.sshfs`.
        package var type: String
        /// The file system's own.
        package var options: String
    }

    var mounts: [Mount]

    /// Lines such as `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw`; others are left out.
    init(_ text: String) {
        mounts = text.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ", omittingEmptySubsequences: false)
            guard fields.count >= 9, let id = Int(fields[0]), let dash = fields[6...].firstIndex(of: "-"),
                dash + 2 < fields.count
            else { return nil }
            return Mount(
                id: id,
                root: Self.unescaped(fields[3]),
                point: Self.unescaped(fields[4]),
                type: String(fields[dash + 1]),
                options: dash + 3 < fields.count ? String(fields[dash + 3]) : ""
            )
        }
    }

    package func type(of id: Int) -> String? { mounts.last { $0.id == id }?.type }

    /// Whether a file system of that type asks another machine, or a process of this one.
    static func isRemote(_ type: String) -> Bool {
        remote.contains(type) || type.hasPrefix("fuse.") || type == "fuse" || type == "fuseblk"
    }

    private static let remote: Set<String> = [
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "ocfs2", "gfs2", "beegfs",
        "virtiofs", "vboxsf", "davfs", "coda", "orangefs", "gpfs",
    ]

    /// A blank, tab, line break or backslash stands as a backslash and three octal digits.
    private static func unescaped(_ field: Substring) -> String {
        guard field.contains("\\") else { return String(field) }
        var bytes: [UInt8] = []
        var rest = Array(field.utf8)[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3,
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
