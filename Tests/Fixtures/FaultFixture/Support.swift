import CFaults
import Dispatch
import Glibc
import RunLoopKit
import Synchronization

func say(_ text: String) {
    print(text)
    fflush(nil)
}

/// Counts, from any thread.
final class Counter: Sendable {
    private let count = Atomic<Int>(0)

    var value: Int { count.load(ordering: .sequentiallyConsistent) }

    @discardableResult
    func increment() -> Int { count.add(1, ordering: .sequentiallyConsistent).newValue }
}

/// A separate thread that can be joined. (libdispatch's threads cannot be used if descriptors run out: it ends the process then.)
struct Thread: Sendable {
    private let handle: pthread_t

    init(_ body: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let work = unsafe Unmanaged.passRetained(Work(body: body)).toOpaque()
        let failure = unsafe pthread_create(
            &thread,
            nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body()
                return nil
            },
            work
        )
        precondition(failure == 0, "pthread_create: errno \(failure)")
        handle = thread
    }

    func join() { pthread_join(handle, nil) }

    private final class Work: Sendable {
        let body: @Sendable () -> Void
        init(body: @escaping @Sendable () -> Void) { self.body = body }
    }
}

/// A thread with a loop that runs until it is stopped.
struct Worker: Sendable {
    let loop: EventRunLoop
    private let thread: Thread

    init() {
        let slot = Slot<EventRunLoop>()
        thread = Thread {
            let loop = EventRunLoop.current
            loop.add(EventSource { _ in })
            slot.set(loop)
            loop.run()
        }
        loop = slot.wait()
        waitUntilAsleep(loop)
    }

    /// Whether a block is executed within a minute.
    func answers() -> Bool {
        let answer = Counter()
        loop.perform { answer.increment() }
        return waitUntil { answer.value > 0 }
    }

    func end() {
        loop.stop()
        thread.join()
    }
}

/// A value that is set later.
final class Slot<Value: Sendable>: Sendable {
    private let content = Mutex<Value?>(nil)

    func set(_ value: Value) { content.withLock { $0 = value } }

    func wait() -> Value {
        while true {
            if let value = content.withLock({ $0 }) { return value }
            usleep(200)
        }
    }
}

/// Waits until the loop's thread sleeps in the kernel, according to the kernel,
/// or according to the loop if there is no descriptor to ask the kernel with.
func waitUntilAsleep(_ loop: EventRunLoop) {
    guard let id = loop.thread?.id else { return }
    _ = waitUntil { loop.isWaiting && state(ofThread: id) ?? "S" == "S" }
}

private func state(ofThread id: Int32) -> Character? {
    guard let file = unsafe fopen("/proc/self/task/\(id)/stat", "r") else { return nil }
    defer { unsafe fclose(file) }
    var text = [CChar](repeating: 0, count: 256)
    guard unsafe fgets(&text, 256, file) != nil else { return nil }
    let line = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return line.split(separator: ")").last?.dropFirst().first
}

func waitUntil(_ condition: () -> Bool) -> Bool {
    let deadline = MonotonicInstant.now.advanced(by: .seconds(60))
    while !condition() {
        if MonotonicInstant.now > deadline { return false }
        usleep(200)
    }
    return true
}

/// The descriptors of this process, filtered by their description in /proc.
func descriptors(of kind: String = "") -> [Int32] {
    guard let directory = unsafe opendir("/proc/self/fd") else { return [] }
    defer { unsafe closedir(directory) }
    let own = unsafe dirfd(directory)
    var found: [Int32] = []
    while let entry = unsafe readdir(directory) {
        let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
            unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
        }
        guard let number = Int32(name), number != own else { continue }
        if kind.isEmpty || target(of: number).contains(kind) { found.append(number) }
    }
    return found
}

private func target(of descriptor: Int32) -> String {
    var text = [CChar](repeating: 0, count: 256)
    let length = unsafe readlink("/proc/self/fd/\(descriptor)", &text, 255)
    return String(decoding: text.prefix(max(0, length)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// An unlinked file.
func makeFile() -> Int32 {
    var path = Array("/tmp/fault-XXXXXX".utf8CString)
    let file = unsafe mkstemp(&path)
    if file >= 0 { unsafe unlink(path) }
    return file
}

/// The size of an open file, or -1.
func size(of file: Int32) -> Int {
    var status = stat()
    return unsafe fstat(file, &status) == 0 ? Int(status.st_size) : -1
}
