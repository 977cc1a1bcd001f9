import Foundation
import Synchronization

extension Scene {
    static var foundation: [Scene] {
        [
            running("JSON decoding") {
                keep((try? JSONDecoder().decode([Item].self, from: document))?.count ?? 0)
            },
            running("JSON encoding") { keep((try? JSONEncoder().encode(items))?.count ?? 0) },
            running("JSONSerialization") {
                keep((try? JSONSerialization.jsonObject(with: document) as? [Any])?.count ?? 0)
            },
            running("String(format:)") {
                keep(String(format: "%d %@ %.3f", 42, "text" as NSString, 1.5).count)
            },
            running("NSRegularExpression") {
                keep(matches(of: "(a+)(b|c)*d", in: "aaabcbcbcd and aabd"))
            },
            running("Date formatting") {
                keep(Date(timeIntervalSince1970: 1e9).formatted(.iso8601).count)
            },
            running("Data") {
                keep(Data((0..<2000).map { UInt8($0 & 255) }).base64EncodedString().count)
            },
            running("URL") {
                keep(URL(string: "https://example.com/a/b?c=d#e")?.pathComponents.count ?? 0)
            },
        ]
    }

    static var blocked: [Scene] {
        let semaphore = DispatchSemaphore(value: 0)
        let lock = NSLock()
        let condition = NSCondition()
        let isSet = Mutex(false)
        let pipe = Pipe()
        let group = DispatchGroup()
        let queue = DispatchQueue(label: "busy")
        let gate = DispatchSemaphore(value: 0)
        return [
            blocked(
                "DispatchSemaphore.wait",
                enter: { semaphore.wait() },
                release: { semaphore.signal() }
            ),
            blocked(
                "NSLock",
                prepare: { lock.lock() },
                enter: {
                    lock.lock()
                    lock.unlock()
                },
                release: { lock.unlock() }
            ),
            blocked(
                "NSCondition",
                prepare: { isSet.withLock { $0 = false } },
                enter: {
                    condition.lock()
                    while !isSet.withLock({ $0 }) { condition.wait() }
                    condition.unlock()
                },
                release: {
                    condition.lock()
                    isSet.withLock { $0 = true }
                    condition.signal()
                    condition.unlock()
                }
            ),
            blocked(
                "FileHandle.read",
                enter: { keep((try? pipe.fileHandleForReading.read(upToCount: 1))?.count ?? 0) },
                release: { try? pipe.fileHandleForWriting.write(contentsOf: Data([1])) }
            ),
            blocked(
                "DispatchGroup.wait",
                prepare: { group.enter() },
                enter: { group.wait() },
                release: { group.leave() }
            ),
            blocked(
                "DispatchQueue.sync on a busy queue",
                prepare: { queue.async { gate.wait() } },
                enter: { queue.sync { Subject.work(1) } },
                release: { gate.signal() }
            ),
        ]
    }

    /// - Parameter prepare: Called before each time, on the releasing thread.
    private static func blocked(
        _ name: String,
        prepare: @escaping @Sendable () -> Void = {},
        enter: @escaping @Sendable () -> Void,
        release: @escaping @Sendable () -> Void
    ) -> Scene {
        let start = { @Sendable in
            prepare()
            onThread {
                Subject.here()
                nest(Int.random(in: 0..<8), enter)
                Subject.leave()
            }
        }
        return Scene(name: name, way: .blocked(enter: start, release: release))
    }
}

@inline(never)
private func nest(_ depth: Int, _ body: () -> Void) {
    if depth == 0 { body() } else { nest(depth - 1, body) }
    Subject.work(depth)
}

private struct Item: Codable {
    var id: Int
    var name: String
    var tags: [String]
    var scores: [String: Double]
}
private let items = (0..<50).map {
    Item(id: $0, name: "item \($0)", tags: ["a", "b\($0)"], scores: ["x": Double($0)])
}
private let document = (try? JSONEncoder().encode(items)) ?? Data()

@inline(never)
private func matches(of pattern: String, in text: String) -> Int {
    let expression = try? NSRegularExpression(pattern: pattern)
    return expression?.numberOfMatches(
        in: text,
        range: NSRange(location: 0, length: text.utf16.count)
    ) ?? 0
}
