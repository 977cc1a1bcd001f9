import Foundation

// All peers are measured in one process and one run: a ratio between two runs on a shared machine means little. For this reason,
// and because some peers are C libraries with threads on chosen cores, no benchmark package is used: such packages measure one
// closure at a time, against thresholds of an earlier run.

let options = Options(Array(CommandLine.arguments.dropFirst()))
let harness = Harness(share: options.isQuick ? 0.1 : 1)
let chosen = Catalogue.all.compactMap { options.choose($0) }
raiseDescriptorLimit()

var results: [WorkloadResult] = []
for workload in chosen {
    let start = Date.now
    for cores in Harness.Cores.allCases { results.append(harness.run(workload, on: cores)) }
    let time = Date.now.timeIntervalSince(start).formatted(.number.precision(.fractionLength(1)))
    FileHandle.standardError.write(Data("\(workload.name): \(time) s\n".utf8))
}
let report = Report(results: results)
print(options.asJSON ? try report.json() : report.text)

/// Sufficient for 10,000 descriptors and the peers' additional ones.
func raiseDescriptorLimit() {
    var limit = rlimit()
    unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = limit.rlim_max
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}
