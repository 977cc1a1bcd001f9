import Dispatch
import Foundation
import Glibc
import RunLoopKit
import StallMonitor
import Synchronization

/// A watched process that stalls on request, for tests that observe it from outside.
///
/// It prints `ready` on standard output once it is watched, then reads one request per line from standard input: a fault's name
/// and a duration in milliseconds, such as `sleep 1500`. It shuts down at the end of its input or on SIGTERM.
package struct StallHost: Sendable {
    /// The faults that the main actor can be made to execute.
    package enum Fault: String, CaseIterable, Sendable {
        case json, lock, pipe, sleep, fsync, loop
    }

    private let directory: String

    package init(directory: String) { self.directory = directory }

    /// Returns when the process has to end.
    package func run() async {
        let monitor = StallMonitor.start(.init(directory: directory, repeats: .everyStall))
        defer { monitor.stop() }
        // The dispatch source handles the signal, even if it is blocked, as in processes that tests start.
        signal(SIGTERM, SIG_IGN)
        let end = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
        await withTaskGroup { group in
            let (requests, continuation) = AsyncStream<(Fault, Int)>.makeStream()
            end.setEventHandler { continuation.finish() }
            // A thread of libdispatch registers it: a signal that came before would be lost.
            await withCheckedContinuation { registered in
                end.setRegistrationHandler { registered.resume() }
                end.resume()
            }
            startThread(named: "requests") {
                while let line = readLine() {
                    let words = line.split(separator: " ")
                    guard words.count == 2, let fault = Fault(rawValue: String(words[0])), let length = Int(words[1])
                    else { continue }
                    continuation.yield((fault, length))
                }
                continuation.finish()
            }
            // Not `print`: flushing all streams would wait for the stream that `requests` reads from.
            unsafe _ = write(STDOUT_FILENO, "ready\n", 6)
            for await (fault, milliseconds) in requests {
                group.addTask { try? await perform(fault, milliseconds) }
            }
        }
    }

    private func perform(_ fault: Fault, _ milliseconds: Int) async throws {
        let length = Duration.milliseconds(milliseconds)
        switch fault {
        case .json:
            let document = try JSONEncoder().encode(Row.table(5_000).map(\.scores))
            await stall { decodeDocument(document, until: .now.advanced(by: length)) }
        case .lock:
            let (lock, isHeld) = (SharedCount(), Gate())
            startThread(named: "holder") {
                lock.value.withLock { _ in
                    isHeld.open()
                    sleepFor(length)
                }
            }
            isHeld.wait()
            await stall { waitForSwiftMutex(lock) }
        case .pipe:
            let pipe = try Descriptors.pipe()
            startThread(named: "writer") {
                sleepFor(length)
                pipe.writeByte()
            }
            await stall { readFromPipe(pipe.first) }
        case .sleep: await stall { sleepInHandler(length) }
        case .fsync:
            let file = try ScratchFile()
            await stall { syncFile(file, until: .now.advanced(by: length)) }
        case .loop: await stall { transformTable(until: .now.advanced(by: length)) }
        }
    }

    private func stall(_ body: @MainActor @Sendable () -> Int) async {
        await MainActor.run { keep(body()) }
    }
}
