import Foundation
import PoolJobs
import StallMonitor
import StallMonitorLoops

/// The work in a program with the hook: not armed, or watched. Without an argument
/// it runs all three variants in alternation, and prints the time for one job.
@main
struct HookedJobs {
    private static let variants = ["plain", "not armed", "watched"]

    static func main() async throws {
        var arguments = Array(CommandLine.arguments.dropFirst())
        guard let variant = arguments.first, variants.contains(variant) else { return try compare(arguments) }
        arguments.removeFirst()
        let monitor = variant == "watched" ? StallMonitor.start(.init(directory: directory), watching: .taskPool) : nil
        defer {
            monitor?.stop()
            try? FileManager.default.removeItem(atPath: directory)
        }
        await PoolJobs.run(arguments, workers: ProcessInfo.processInfo.activeProcessorCount)
    }

    private static let directory = NSTemporaryDirectory() + "/pool-jobs-\(getpid())"

    /// Every variant runs once in each round, so that other load on the machine affects all alike.
    private static func compare(_ arguments: [String]) throws {
        let rounds = arguments.first.flatMap { Int($0) } ?? 9
        var times: [String: [String: [Double]]] = [:]
        for _ in 0..<rounds {
            for variant in variants {
                for (work, time) in try play(variant, arguments.dropFirst()) {
                    times[work, default: [:]][variant, default: []].append(time)
                }
            }
        }
        print(
            "nanoseconds for one job, median (best) of \(rounds) rounds; x is the median of what a round's plain one took"
        )
        for work in PoolJobs.allCases {
            let own = times[work.rawValue] ?? [:]
            let cells = variants.map { variant in
                let all = own[variant] ?? []
                let ratio = median(zip(all, own["plain"] ?? []).map { $0 / $1 })
                return "\(variant) \(Int(median(all))) (\(Int(all.min() ?? 0))) x\((ratio * 100).rounded() / 100)"
            }
            print("\(work.rawValue): \(cells.joined(separator: ", "))")
        }
    }

    private static func play(_ variant: String, _ arguments: ArraySlice<String>) throws -> [(String, Double)] {
        let own = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath()
        let process = Process()
        process.executableURL =
            variant == "plain" ? own.deletingLastPathComponent().appending(path: "PoolJobsPlain") : own
        process.arguments = (variant == "plain" ? [] : [variant]) + arguments
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return text.split(separator: "\n").compactMap { line in
            let parts = line.split(separator: "\t")
            return parts.count == 2 ? Double(parts[1]).map { (String(parts[0]), $0) } : nil
        }
    }

    private static func median(_ values: [Double]) -> Double {
        values.isEmpty ? 0 : values.sorted()[values.count / 2]
    }
}
