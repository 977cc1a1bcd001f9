import Foundation
import StallMonitor
import StallMonitorLoops

/// A command-line tool on Foundation's run loop: it prints every 200 ms how many files a folder has, for two seconds. One of its timers
/// stalls the loop, so that lines are missing meanwhile.
///
///     folder-report FOLDER
@main struct FolderReport {
    static func main() throws {
        let monitor = StallMonitor.start(watching: .foundationMain)
        defer { monitor.stop() }

        let folder = CommandLine.arguments.dropFirst().first ?? "."
        let timers = [
            Timer.scheduledTimer(withTimeInterval: 0.2, repeats: true) { _ in print("\(countFiles(in: folder)) files")
            },
            Timer.scheduledTimer(withTimeInterval: 0.7, repeats: false) { _ in print(sumUp(folder)) },
        ]
        RunLoop.main.run(until: Date(timeIntervalSinceNow: 2))
        for timer in timers { timer.invalidate() }
        print("ended in order")
    }

    static func countFiles(in folder: String) -> Int {
        (try? FileManager.default.contentsOfDirectory(atPath: folder).count) ?? 0
    }

    /// Stalls: it waits for a child process on the main thread. A handler of `readabilityHandler` would let the loop go on.
    static func sumUp(_ folder: String) -> String {
        let (process, output) = (Process(), Pipe())
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = ["-c", "sleep 0.6; du -sk -- \"$0\" | cut -f1", folder]
        process.standardOutput = output
        do { try process.run() } catch { return "\(error)" }
        let kilobytes = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        return "\(kilobytes.trimmingCharacters(in: .whitespacesAndNewlines)) kB"
    }
}
