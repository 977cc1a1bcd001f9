import StallReports

/// The Firefox Profiler's processed profile format, version 48: one thread per watched loop, with a marker per stall, and its
/// stacks as samples weighted by their time. Format: github.com/firefox-devtools/profiler, `docs-developer/CHANGELOG-formats.md`.
struct FirefoxExporter: ReportExporter {
    private var threads: [Track: ProfileThread] = [:]
    private var order: [Track] = []
    private var libraries = Libraries()
    /// The processes' numbers in the profile.
    private var numbers: [ProcessKey: String] = [:]
    /// How many processes have one number.
    private var uses: [Int32: Int] = [:]

    private struct Track: Hashable {
        let process: ProcessKey
        let label: String
    }

    mutating func add(_ report: StallReport) -> [UInt8] {
        let track = Track(process: .init(report), label: report.watched.label)
        if threads[track] == nil {
            order.append(track)
            // The Profiler shows only one main thread of a process, and every other thread.
            let isMain = numbers[track.process] == nil
            threads[track] = ProfileThread(report, pid: number(of: track.process), isMain: isMain)
        }
        threads[track]?.add(report, &libraries)
        return []
    }

    /// The Profiler merges processes with the same number, but every container has a process 1.
    private mutating func number(of process: ProcessKey) -> String {
        if let known = numbers[process] { return known }
        let others = uses[process.pid, default: 0]
        uses[process.pid] = others + 1
        let number = others == 0 ? "\(process.pid)" : "\(process.pid).\(others)"
        numbers[process] = number
        return number
    }

    func end() throws(ReportError) -> [UInt8] {
        let start = threads.values.compactMap(\.firstNs).min() ?? 0
        return try ReportJSON.encode(
            FirefoxProfile(
                meta: FirefoxProfile.Meta(startTime: Double(start) / 1e6),
                libs: libraries.all,
                threads: order.compactMap { threads[$0]?.finished(from: start) }
            )
        )
    }
}

/// The modules of all threads.
private typealias Libraries = Interned<FirefoxProfile.Library>

/// A thread of the profile while its stalls are collected. Tables have one array per column, as in the format.
private struct ProfileThread {
    private let name: String
    private let processName: String
    private let pid: String
    private let isMain: Bool
    private var strings = Interned<String>()
    private var functions = Interned<Function>()
    private var frames = Interned<Frame>()
    private var stacks = Interned<Stack>()
    private var resources = Interned<Int>()
    private var resourceNames: [Int] = []
    private var stalls: [Stall] = []

    private struct Function: Hashable {
        var name: Int
        var resource: Int
        var file: Int?
    }

    private struct Frame: Hashable {
        var function: Int
        var line: Int?
        var isOwn: Bool
    }

    private struct Stack: Hashable {
        var frame: Int
        var prefix: Int?
    }

    /// A stall with its samples: each stack with its share of the time.
    private struct Stall {
        var startNs: Int64
        var durationNs: Int64
        var name: Int
        var data: FirefoxProfile.MarkerData
        var samples: [(stack: Int?, nanoseconds: Int64)]
    }

    init(_ report: StallReport, pid: String, isMain: Bool) {
        name = plain(report.watched.label)
        (self.pid, self.isMain) = (pid, isMain)
        let service = report.service?.name ?? report.process.executable ?? "process"
        processName = plain("\(service) on \(report.host.name)")
    }

    var firstNs: Int64? { stalls.map(\.startNs).min() }

    mutating func add(_ report: StallReport, _ libraries: inout Libraries) {
        var weighted = WeightedStacks()
        weighted.add(report)
        let samples = weighted.sorted.map { key, weight in
            (stack: stack(key.calls.map { weighted.calls[$0] }, &libraries), nanoseconds: weight.amount)
        }
        stalls.append(
            Stall(
                startNs: report.startedAt.unixNanoseconds,
                durationNs: max(0, report.durationNs),
                name: strings.number(of: plain(report.culpritName ?? report.kind.rawValue)),
                data: FirefoxProfile.MarkerData(report),
                samples: samples
            )
        )
    }

    /// - Parameter calls: outermost first.
    private mutating func stack(_ calls: [WeightedStacks.Call], _ libraries: inout Libraries) -> Int? {
        var prefix: Int?
        for call in calls {
            let function = Function(
                name: strings.number(of: call.name),
                resource: resource(of: call, &libraries),
                file: call.file.map { strings.number(of: $0) }
            )
            let frame = Frame(function: functions.number(of: function), line: call.line, isOwn: call.isOwn)
            prefix = stacks.number(of: Stack(frame: frames.number(of: frame), prefix: prefix))
        }
        return prefix
    }

    private mutating func resource(of call: WeightedStacks.Call, _ libraries: inout Libraries) -> Int {
        guard let module = call.module else { return -1 }
        let library = libraries.number(of: .init(path: module, buildID: call.buildID))
        let number = resources.number(of: library)
        if number == resourceNames.count { resourceNames.append(strings.number(of: libraries.all[library].name)) }
        return number
    }

    /// A sample of the profile, with its weight.
    private typealias Row = (stack: Int?, moment: Int64, nanoseconds: Int64)

    private static func rows(of stalls: [Stall]) -> [Row] {
        var rows: [Row] = []
        for stall in stalls {
            var moment = stall.startNs
            // Each stack is a pair of samples, because the Profiler draws from one sample to the next.
            for sample in stall.samples {
                rows.append((sample.stack, moment, 0))
                moment = moment.addingSaturated(sample.nanoseconds)
                rows.append((sample.stack, moment, sample.nanoseconds))
            }
            rows.append((nil, moment, 0))
        }
        // Several loops may have one label. Their stalls overlap, but the format's times must not decrease.
        let sorted = rows.enumerated().sorted { ($0.element.moment, $0.offset) < ($1.element.moment, $1.offset) }
        return sorted.map(\.element)
    }

    /// - Parameter start: the profile's start; times in the format are milliseconds since then.
    func finished(from start: Int64) -> FirefoxProfile.Thread {
        let sorted = stalls.sorted { $0.startNs < $1.startNs }
        let milliseconds = { (moment: Int64) in Double(moment.subtractingSaturated(start)) / 1e6 }
        var samples = FirefoxProfile.Samples()
        for row in Self.rows(of: sorted) {
            samples.append(stack: row.stack, time: milliseconds(row.moment), weight: Double(row.nanoseconds) / 1e6)
        }
        return FirefoxProfile.Thread(
            name: name,
            processName: processName,
            pid: pid,
            isMainThread: isMain,
            samples: samples,
            markers: .init(
                data: sorted.map(\.data),
                name: sorted.map(\.name),
                startTime: sorted.map { milliseconds($0.startNs) },
                endTime: sorted.map { milliseconds($0.startNs.addingSaturated($0.durationNs)) }
            ),
            stackTable: .init(
                frame: stacks.all.map(\.frame),
                prefix: stacks.all.map(\.prefix),
                category: stacks.all.map { frames.all[$0.frame].isOwn ? 1 : 0 }
            ),
            frameTable: .init(
                func: frames.all.map(\.function),
                line: frames.all.map(\.line),
                category: frames.all.map { $0.isOwn ? 1 : 0 }
            ),
            funcTable: .init(
                name: functions.all.map(\.name),
                resource: functions.all.map(\.resource),
                fileName: functions.all.map(\.file)
            ),
            resourceTable: .init(lib: resources.all, name: resourceNames),
            stringArray: strings.all
        )
    }
}
