import Glibc
import StallReports

/// Judges a log of calls to the disk: which states could a power cut have left at a random moment?
///
/// Of a file's bytes only those before an fsync are certainly on the disk; any part of the others may be. Of the
/// names only the changes before an fsync of the directory are certain; of the later changes any number may be
/// stored, in their order (as in a journal).
struct PowerCuts {
    let log: String
    let count: Int

    func run() {
        guard let bytes = file(log) else { fail("no log") }
        let calls = DiskCall.all(in: bytes)
        guard "RWP".allSatisfy({ letter in calls.contains { $0.letter == letter } }) else {
            fail("the log has no renames, no writes or no promises: nothing was recorded")
        }
        let moments = (0..<count).map { _ in Int.random(in: 0...calls.count) }.sorted()
        var disk = ModelDisk()
        var (position, torn, lost) = (0, 0, 0)
        for moment in moments {
            while position < moment {
                disk.apply(calls[position])
                position += 1
            }
            torn += disk.tornReports
            lost += disk.lostReports
        }
        print("cuts \(moments.count) in \(calls.count) calls: torn \(torn), lost \(lost)")
        exit(torn + lost == 0 ? 0 : 1)
    }
}

/// One record of the log.
struct DiskCall {
    var letter: Character
    var descriptor: Int32
    var offset: Int64
    var bytes: ArraySlice<UInt8>

    static func all(in log: [UInt8]) -> [DiskCall] {
        var calls: [DiskCall] = []
        var rest = log[...]
        while rest.count >= 17 {
            let head = Array(rest.prefix(17))
            let integer = { (range: Range<Int>) in head[range].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
            let length = Int(integer(13..<17))
            guard rest.count >= 17 + length else { break }
            calls.append(
                DiskCall(
                    letter: Character(UnicodeScalar(head[0])),
                    descriptor: Int32(truncatingIfNeeded: integer(1..<5)),
                    offset: Int64(bitPattern: integer(5..<13)),
                    bytes: rest.dropFirst(17).prefix(length)
                )
            )
            rest = rest.dropFirst(17 + length)
        }
        return calls
    }

    var names: [String] { bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) } }
}

/// One directory on a disk that can lose its power.
struct ModelDisk {
    private struct File {
        var bytes: [UInt8] = []
        /// All its bytes are certainly on the disk, and are a complete report.
        var isWhole = false
    }

    private var files: [Int: File] = [:]
    private var open: [Int32: Int] = [:]
    private var directories: Set<Int32> = []
    /// Names that are certainly stored, and the changes since then.
    private var safeNames: [String: Int] = [:]
    private var changes: [(name: String, file: Int?)] = []
    /// Reports whose writers were notified that they are on the disk.
    private var promised: Set<String> = []

    mutating func apply(_ call: DiskCall) {
        switch call.letter {
        case "C": create(call.names[0], call.descriptor)
        case "D": directories.insert(call.descriptor)
        case "W": write(call)
        case "F": synchronize(call.descriptor)
        case "R":
            changes.append((call.names[1], names[call.names[0]] ?? nil))
            changes.append((call.names[0], nil))
        case "P": promised.formUnion(call.names)
        case "U":
            changes.append((call.names[0], nil))
            promised.remove(call.names[0])
        default:
            open[call.descriptor] = nil
            directories.remove(call.descriptor)
        }
    }

    private var names: [String: Int] { changes.reduce(into: safeNames) { $0[$1.name] = $1.file } }

    private mutating func create(_ name: String, _ descriptor: Int32) {
        let number = files.count
        files[number] = File()
        open[descriptor] = number
        changes.append((name, number))
    }

    private mutating func write(_ call: DiskCall) {
        guard let number = open[call.descriptor], var file = files[number] else { return }
        let start = call.offset < 0 ? file.bytes.count : Int(call.offset)
        file.bytes += [UInt8](repeating: 0, count: max(0, start + call.bytes.count - file.bytes.count))
        file.bytes.replaceSubrange(start..<start + call.bytes.count, with: call.bytes)
        file.isWhole = false
        files[number] = file
    }

    private mutating func synchronize(_ descriptor: Int32) {
        if let number = open[descriptor], let bytes = files[number]?.bytes {
            files[number]?.isWhole = (try? StallReport(json: bytes)) != nil || (try? RunRecord(json: bytes)) != nil
        }
        guard directories.contains(descriptor) else { return }
        safeNames = names
        changes = []
    }

    /// Reports with bytes that may be partly missing, or that are invalid, in any of the states that a cut now can leave.
    var tornReports: Int {
        var torn = 0
        var names = safeNames
        for change in [nil] + changes.map(Optional.some) {
            if let change { names[change.name] = change.file }
            torn += names.count { name, number in ReportFileName(name) != nil && files[number]?.isWhole != true }
        }
        return torn
    }

    /// Reports that were promised and may be missing.
    var lostReports: Int { promised.count { safeNames[$0] == nil } }
}
