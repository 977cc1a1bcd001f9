import Dispatch
import FoundationEssentials
import Glibc
import StallReports
import Synchronization

// The data of the stalls. All of it is created before the main actor is stalled.

/// A JSON document that takes about a given time to decode.
struct HugeDocument: Sendable {
    struct Row: Codable {
        var id: Int
        var name: String
        var tags: [String]
        var scores: [String: Double]
    }

    let json: Data

    /// Measures how fast documents are decoded on this machine, and creates one of the right size.
    init(lasting milliseconds: Int) {
        let sample = Self.rows(2_000)
        let time = ContinuousClock().measure { _ = try? JSONDecoder().decode([Row].self, from: sample) }
        let perRow = max(time / 2_000, .nanoseconds(100))
        json = Self.rows(Int(Duration.milliseconds(milliseconds) / perRow) + 1)
    }

    private static func rows(_ count: Int) -> Data {
        let rows = (0..<count).lazy.map {
            #"{"id":\#($0),"name":"row \#($0)","tags":["a","b"],"scores":{"x":1.5,"y":2.5}}"#
        }
        return Data("[\(rows.joined(separator: ","))]".utf8)
    }
}

/// A lock that another thread already holds when `init` returns, and releases after a while.
final class LockHolder: Sendable {
    let lock = Mutex(0)

    init(holding milliseconds: Int) {
        let isHeld = DispatchSemaphore(value: 0)
        DispatchQueue.global().async { [self] in
            lock.withLock { _ in
                isHeld.signal()
                usleep(UInt32(milliseconds) * 1_000)
            }
        }
        isHeld.wait()
    }
}

/// A pipe into which one byte is written after a while.
final class SlowPipe: Sendable {
    let input: Int32
    private let output: Int32

    init(writingAfter milliseconds: Int) throws {
        var ends: [Int32] = [-1, -1]
        guard unsafe pipe(&ends) == 0 else { throw DemoFailure("no pipe to be had (errno \(errno))") }
        (input, output) = (ends[0], ends[1])
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(milliseconds)) { [output] in
            _ = unsafe write(output, "x", 1)
        }
    }

    deinit {
        close(input)
        close(output)
    }
}

/// The times at which workers of a pool that are blocked together began and ended.
final class BlockedCrew: Sendable {
    let count, milliseconds: Int
    private let times = Mutex<(starts: [Timestamp], ends: [Timestamp])>(([], []))

    init(count: Int, for milliseconds: Int) { (self.count, self.milliseconds) = (count, milliseconds) }

    func begin() { times.withLock { $0.starts.append(.now()) } }
    func end(_ result: Int32) { times.withLock { $0.ends.append(.now()) } }

    /// The time at which the last of them began.
    var startedAt: Timestamp { times.withLock { $0.starts.max() } ?? .now() }
    /// The time at which the first of them ended.
    var endedAt: Timestamp { times.withLock { $0.ends.min() } ?? .now() }
}

/// An unlinked file of 64 MB.
final class LargeFile: Sendable {
    let descriptor: Int32
    private static let chunk = [UInt8](repeating: 0x5a, count: 1 << 20)

    init() throws {
        var template = Array("/var/tmp/stall-monitor-demo.XXXXXX".utf8CString)
        descriptor = unsafe mkstemp(&template)
        guard descriptor >= 0 else { throw DemoFailure("no temporary file in /var/tmp (errno \(errno))") }
        unsafe unlink(template)
        for _ in 0..<64 { _ = unsafe write(descriptor, Self.chunk, Self.chunk.count) }
    }

    deinit {
        close(descriptor)
    }

    /// Writes only a little: the sync should take the time, not the writing.
    func dirty(round: Int) {
        for chunk in 0..<4 {
            let offset = (round * 4 + chunk) % 64 << 20
            _ = unsafe pwrite(descriptor, Self.chunk, 4096, offset)
        }
    }
}
