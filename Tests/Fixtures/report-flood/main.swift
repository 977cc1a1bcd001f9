import Dispatch
import Glibc
import StallReports
import Synchronization

// report-flood DIR COUNT [FIRST] [RUNS]: writes the reports FIRST ..< FIRST + COUNT of a flood that ends now; with
// the first ones its run records.

@Sendable func fail(_ text: String) -> Never {
    print(text)
    exit(1)
}

let words = CommandLine.arguments.dropFirst().map { $0 }
guard words.count >= 2, let count = Int(words[1]), count >= 0 else {
    fail("usage: report-flood DIR COUNT [FIRST] [RUNS]")
}
let first = words.count > 2 ? Int(words[2]) ?? 0 : 0
var size = Flood.Size(reports: max(1, first + count))
size.runs = words.count > 3 ? Int(words[3]) ?? size.runs : size.runs
let flood = Flood(size, endingAt: Timestamp.now().advanced(byNanoseconds: -60_000_000_000), seed: 1)
let directory = ReportDirectory(path: words[0], limits: .init(reports: 1_000_000, runs: 1_000_000, bytes: 1 << 40))
do { try directory.prepare() } catch { fail("\(error)") }
for run in first == 0 ? flood.runRecords() : [] {
    guard let bytes = try? run.json() else { continue }
    write("\(ReportFileName(.run, run.id))", bytes)
}
let next = Atomic(0)
DispatchQueue.concurrentPerform(iterations: 2) { _ in
    while true {
        let number = next.add(1, ordering: .relaxed).oldValue
        guard number < count else { return }
        let (name, bytes) = flood.report(first + number)
        write(name, bytes)
    }
}

@Sendable func write(_ name: String, _ bytes: [UInt8]) {
    let file = unsafe open("\(words[0])/\(name)", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard file >= 0 else { fail("\(name): errno \(errno)") }
    guard unsafe Glibc.write(file, bytes, bytes.count) == bytes.count else { fail("\(name): errno \(errno)") }
    close(file)
}
