import Glibc

/// Names of functions that were generated at run time, as their generator has written them to `/tmp/perf-PID.map` for perf:
/// node with `--perf-basic-prof` (and `--interpreted-frames-native-stack` for functions that are not compiled), Python 3.12 with
/// `-X perf`, agents of the JVM. Pure except for `Source.read(limit:)`.
///
/// Such files grow as long as the process runs. Of a long file only the end is used. Its names are right, because later lines
/// replace earlier ones; functions that only the beginning names get no name.
///
/// A line is `START SIZE NAME`, both numbers in hexadecimal. If several lines cover an address, the last one is valid, because
/// new code is generated in the place of old code. The file is not trusted: invalid lines are ignored.
struct PerfMap: Sendable {
    private struct Entry {
        var start: UInt
        var end: UInt
        /// The range of the name in the text.
        var name: Range<Int>
        /// The highest end of this entry and all that start before it.
        var reach: UInt
        /// Higher for a later line.
        var line: Int
    }

    private let text: [UInt8]
    /// Sorted by start.
    private let entries: [Entry]
    /// The size of the file if not all of it is used.
    let sizeIfCut: Int?

    /// The greatest number of entries kept, of bytes of a name, and of entries tried for one address.
    static let limits = (entries: 400_000, name: 512, steps: 1000)

    /// - Parameters:
    ///   - text: The end of the file, or all of it.
    ///   - size: The file's size; by default that of the text.
    init(parsing text: [UInt8], ofFileOf size: Int? = nil, limit: Int = limits.entries) {
        var found: [Entry] = []
        // From the end: the last lines are the valid ones.
        var end = text.count
        while end > 0, found.count < limit {
            let start = text[..<end].lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
            // From the end: each line has a lower number than those before it in `found`.
            if let entry = Self.entry(text, start..<end, number: -found.count) { found.append(entry) }
            end = start - 1
        }
        let fileSize = size ?? text.count
        sizeIfCut = end > 0 || fileSize > text.count ? fileSize : nil
        found.sort { ($0.start, $0.line) < ($1.start, $1.line) }
        var reach: UInt = 0
        for index in found.indices {
            reach = max(reach, found[index].end)
            found[index].reach = reach
        }
        (self.text, entries) = (text, found)
    }

    var isEmpty: Bool { entries.isEmpty }

    /// The function around an address, and its start.
    func function(at address: UInt) -> (name: String, start: UInt)? {
        let next = entries.partitioningIndex { $0.start > address }
        var best: Entry?
        for entry in entries[..<next].suffix(Self.limits.steps).reversed() {
            guard entry.reach > address else { break }
            if entry.end > address, best.map({ entry.line > $0.line }) ?? true { best = entry }
        }
        return best.map {
            let name = String(decoding: text[$0.name].map(Self.printable), as: UTF8.self)
            return (GeneratedName.withoutTier(name), $0.start)
        }
    }

    private static func entry(_ text: [UInt8], _ line: Range<Int>, number: Int) -> Entry? {
        var at = line.lowerBound
        guard let start = hexadecimal(text, &at, line.upperBound), let size = hexadecimal(text, &at, line.upperBound),
            size > 0, at < line.upperBound
        else { return nil }
        let (end, isTooFar) = start.addingReportingOverflow(size)
        guard !isTooFar else { return nil }
        return Entry(start: start, end: end, name: at..<min(line.upperBound, at + limits.name), reach: 0, line: number)
    }

    /// A number and the blank after it.
    private static func hexadecimal(_ text: [UInt8], _ at: inout Int, _ end: Int) -> UInt? {
        if at + 1 < end, text[at] == UInt8(ascii: "0"), text[at + 1] | 0x20 == UInt8(ascii: "x") { at += 2 }
        var value: UInt = 0
        let first = at
        while at < end, at - first < 17, let digit = digit(text[at]) {
            value = value << 4 | digit
            at += 1
        }
        guard at > first, at - first <= 16, at < end, text[at] == UInt8(ascii: " ") else { return nil }
        at += 1
        return value
    }

    private static func digit(_ byte: UInt8) -> UInt? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt(byte - UInt8(ascii: "0"))
        case UInt8(ascii: "a")...UInt8(ascii: "f"): UInt(byte - UInt8(ascii: "a") + 10)
        case UInt8(ascii: "A")...UInt8(ascii: "F"): UInt(byte - UInt8(ascii: "A") + 10)
        default: nil
        }
    }

    private static func printable(_ byte: UInt8) -> UInt8 { byte < 0x20 || byte == 0x7f ? UInt8(ascii: "?") : byte }
}

// MARK: - The file

extension PerfMap {
    /// In bytes. If a file is larger, only its end is read, which has the most recently generated code.
    static let sizeLimit = 32 << 20

    /// Identifies one state of a process's file. Nil if it has no file that can be trusted.
    ///
    /// The file must be in the process's own /tmp, under the process id that the process has in its own namespace. It is trusted if
    /// it is a regular file with one link, belongs to the process's own user or to root, and cannot be written by others.
    struct Source: ~Copyable {
        private let file: Int32
        let stamp: FileStamp

        init?(of process: ProcessDirectory) {
            guard let number = process.ownNumber, let user = process.user else { return nil }
            // A link in the place of /tmp would lead out of the process's root into ours.
            let directory = unsafe open(process.file("/tmp"), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
            guard directory >= 0 else { return nil }
            defer { close(directory) }
            let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC
            let opened = unsafe openat(directory, "perf-\(number).map", flags)
            guard opened >= 0 else { return nil }
            guard Self.isBelieved(opened, user), let stamp = FileStamp(descriptor: opened) else {
                close(opened)
                return nil
            }
            (file, self.stamp) = (opened, stamp)
        }

        deinit { close(file) }

        private static func isBelieved(_ file: Int32, _ user: uid_t) -> Bool {
            var status = stat()
            guard unsafe fstat(file, &status) == 0 else { return false }
            return status.st_mode & S_IFMT == S_IFREG && (status.st_uid == user || status.st_uid == 0)
                && status.st_nlink == 1 && status.st_mode & S_IWOTH == 0
        }

        /// - Parameter limit: Of a larger file the end is read.
        func read(limit: Int = PerfMap.sizeLimit) -> PerfMap {
            let size = Int(clamping: stamp.size)
            let from = max(0, size - limit)
            var text = unsafe [UInt8](unsafeUninitializedCapacity: min(size, limit)) { buffer, filled in
                while filled < buffer.count {
                    let count = unsafe pread(
                        file,
                        buffer.baseAddress! + filled,
                        buffer.count - filled,
                        off_t(from + filled)
                    )
                    if count < 0 && errno == EINTR { continue }
                    if count <= 0 { break }
                    filled += count
                }
            }
            // The first line of a partial file is incomplete.
            if from > 0 { text.removeFirst(text.firstIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? text.count) }
            return PerfMap(parsing: text, ofFileOf: size)
        }
    }
}

extension ProcessDirectory {
    /// The process id in the process's own namespace: in a container it differs from ours.
    fileprivate var ownNumber: Int32? {
        guard let status = readWholeFile(path + "/status") else { return nil }
        let line = String(decoding: status, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("NSpid:") }
        return line?.split(whereSeparator: { $0 == "\t" || $0 == " " }).last.flatMap { Int32($0) }
    }

    /// The owner of the process.
    fileprivate var user: uid_t? {
        var status = stat()
        return unsafe stat(path, &status) == 0 ? status.st_uid : nil
    }
}

/// The latest contents of one process's file. It is read again if it has changed, for at most 5 % of a processor's time: reading a file of the
/// greatest size takes a third of a second. Waits for a processor do not count: on a busy machine they would keep the old contents for seconds,
/// and functions that ran first after that would have no name.
struct PerfMapCache: Sendable {
    /// No longer than the shortest stall: the functions on its stack were written before it began.
    static let leastValidity = Duration.milliseconds(50)
    static let greatestValidity = Duration.seconds(30)

    private var stamp: FileStamp?
    private var map: PerfMap?
    private var isValidUntil: ContinuousClock.Instant?
    /// Whether the process runs another program now, which writes a file of its own.
    var isFinal = false

    /// Nil for a process without a file.
    mutating func map(of process: ProcessDirectory, at now: ContinuousClock.Instant = .now) -> PerfMap? {
        if isFinal { return map }
        if map != nil, let isValidUntil, now < isValidUntil { return map }
        let start = processorTime()
        guard let source = PerfMap.Source(of: process) else {
            // The file of a process that has ended cannot be reached any more, but its stacks may get their names only now. If this process has no
            // descriptor left, that says nothing about the file.
            if process.executable != nil, Self.mayOpenFiles { (stamp, map) = (nil, nil) }
            return map
        }
        if source.stamp != stamp { (stamp, map) = (source.stamp, source.read()) }
        isValidUntil = .now + max(Self.leastValidity, min((processorTime() - start) * 19, Self.greatestValidity))
        return map
    }

    private static var mayOpenFiles: Bool {
        let file = unsafe open("/dev/null", O_RDONLY | O_CLOEXEC)
        if file >= 0 { close(file) }
        return file >= 0
    }
}
