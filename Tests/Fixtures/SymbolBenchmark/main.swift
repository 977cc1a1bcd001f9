import Foundation
import Symbolication

// Names the addresses of a file, and says what that cost. `SymbolBenchmark FILE BUILDID [OFFSET…]`, offsets in hexadecimal; without
// any, the stack of this program itself.

func residentBytes() -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
    return (text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 4096
}

func timed(_ label: String, _ work: () -> Resolution) -> Resolution {
    let before = residentBytes()
    let start = ContinuousClock.now
    let result = work()
    let time = ContinuousClock.now - start
    let microseconds = Double(time.components.attoseconds) / 1e12 + Double(time.components.seconds) * 1e6
    FileHandle.standardError.write(
        Data(
            String(
                format: "%@: %.0f us, %+.1f MB, %d frames, %d with a line, %d inlined\n",
                label,
                microseconds,
                Double(residentBytes() - before) / 1e6,
                result.frames.count,
                result.frames.count { $0.location != nil },
                result.frames.reduce(0) { $0 + $1.inlined.count }
            ).utf8
        )
    )
    return result
}

func describe(_ location: SourceLocation?) -> String {
    location.map { "\($0.file):\($0.line)\($0.column.map { ":\($0)" } ?? "")" } ?? "??:0"
}

let arguments = CommandLine.arguments.dropFirst()
guard let path = arguments.first, let buildID = arguments.dropFirst().first else {
    print("usage: SymbolBenchmark FILE BUILDID OFFSET…")
    exit(64)
}
let modules = [LoadedModule(path: path, buildID: buildID, loadBase: 0)]
let places = arguments.dropFirst(2).compactMap { UInt($0, radix: 16) }
    .map { ModulePlace(module: 0, offset: $0, isReturnAddress: false) }
let directories = ProcessInfo.processInfo.environment["SYMBOLS"].map { [$0] } ?? []
let symbolicator = Symbolicator(search: SymbolSearch(directories: directories, server: DebugInfoServer()))
let cold = timed("cold") { symbolicator.resolve(places, in: modules, budget: .tool) }
for frame in cold.frames {
    for call in frame.inlined { print("  inlined\t\(call.symbol ?? "??")\t\(describe(call.location))") }
    print("\(String(frame.moduleOffset, radix: 16))\t\(frame.symbol ?? "??")\t\(describe(frame.location))")
}
for problem in cold.problems { FileHandle.standardError.write(Data("problem: \(problem)\n".utf8)) }
_ = timed("warm") { symbolicator.resolve(places, in: modules, budget: .tool) }
_ = timed("warm") { symbolicator.resolve(places, in: modules, budget: .tool) }
