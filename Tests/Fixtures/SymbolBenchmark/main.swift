import Foundation
import Symbolication

// Symbolicates addresses of files, and prints the cost. Offsets are hexadecimal, relative to each file.

func residentBytes() -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
    return (text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 4096
}

/// Microseconds.
func processorTime() -> Double {
    var time = timespec()
    unsafe clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Double(time.tv_sec) * 1e6 + Double(time.tv_nsec) / 1e3
}

func timed(_ label: String, _ work: () -> Resolution) -> Resolution {
    let before = residentBytes()
    let start = ContinuousClock.now
    let startOnCPU = processorTime()
    let result = work()
    let time = (ContinuousClock.now - start) / .microseconds(1)
    FileHandle.standardError.write(
        Data(
            String(
                format: "%@: %.0f us (%.0f us on a processor), %+.1f MB, %d frames, %d with a line, %d inlined\n",
                label,
                time,
                processorTime() - startOnCPU,
                Double(residentBytes() - before) / 1e6,
                result.frames.count,
                result.frames.count { $0.location != nil },
                result.frames.reduce(0) { $0 + $1.inlined.count }
            ).utf8
        )
    )
    return result
}

func describe(_ location: SourcePosition?) -> String {
    location.map { "\($0.file):\($0.line)\($0.column.map { ":\($0)" } ?? "")" } ?? "??:0"
}

let groups = CommandLine.arguments.dropFirst().map { $0.split(separator: ",").map(String.init) }
guard let first = groups.first, first.count >= 2 else {
    print("usage: SymbolBenchmark FILE,BUILDID,OFFSET,OFFSET… …")
    exit(64)
}
let modules = groups.map { LoadedModule(path: $0[0], buildID: $0[1], loadBase: 0) }
let places = groups.enumerated().flatMap { index, group in
    group.dropFirst(2).compactMap { UInt($0, radix: 16) }
        .map { ModulePlace(module: index, offset: $0, isReturnAddress: false) }
}
let directories = ProcessInfo.processInfo.environment["SYMBOLS"].map { [$0] } ?? []
let patience = Duration.seconds(Int(ProcessInfo.processInfo.environment["PATIENCE"] ?? "") ?? 20)
let isServer = ProcessInfo.processInfo.environment["BUDGET"] == "server"
let budget: SymbolicationBudget = isServer ? .server : .tool
let symbolicator = Symbolicator(
    search: SymbolSearch(directories: directories, server: DebugInfoServer(patience: patience))
)
let cold = timed("cold") { symbolicator.resolve(places, in: modules, budget: budget) }
for frame in cold.frames {
    for call in frame.inlined { print("  inlined\t\(call.symbol ?? "??")\t\(describe(call.location))") }
    print("\(String(frame.moduleOffset, radix: 16))\t\(frame.symbol ?? "??")\t\(describe(frame.location))")
}
for problem in cold.problems { FileHandle.standardError.write(Data("problem: \(problem)\n".utf8)) }
_ = timed("warm") { symbolicator.resolve(places, in: modules, budget: budget) }
_ = timed("warm") { symbolicator.resolve(places, in: modules, budget: budget) }
