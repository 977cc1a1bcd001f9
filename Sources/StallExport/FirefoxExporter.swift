import StallReports

/// The Firefox Profiler's processed profile format, version 48: one thread per watched loop, with a marker per stall, and its
/// stacks as samples weighted by their time. Format: github.com/firefox-devtools/profiler, `docs-developer/CHANGELOG-formats.md`.
struct FirefoxExporter: ReportExporter {
    private var threads: [Track: ProfileThread] = [:]
    private var order: [Track] = []
    private var libraries = Libraries()

    private struct Track: Hashable {
        let process: TraceEventExporter.Process
        let label: String
    }

    mutating func add(_ report: StallReport) -> [UInt8] {
        let track = Track(process: .init(report), label: report.watched.label)
        if threads[track] == nil {
            order.append(track)
            threads[track] = ProfileThread(report)
        }
        threads[track]?.add(report, &libraries)
        return []
    }

    func end() throws(ReportError) -> [UInt8] {
        let start = threads.values.compactMap(\.firstNs).min() ?? 0
        return try line(
            Profile(
                meta: Profile.Meta(startTime: Double(start) / 1e6),
                libs: libraries.all,
                threads: order.compactMap { threads[$0]?.finished(from: start) }
            )
        )
    }
}

/// The modules of all threads.
private struct Libraries {
    private(set) var all: [Profile.Library] = []
    private var numbers: [String: Int] = [:]

    mutating func number(of path: String, buildID: String?) -> Int {
        let key = "\(path) \(buildID ?? "")"
        if let known = numbers[key] { return known }
        numbers[key] = all.count
        let name = path.split(separator: "/").last.map(String.init) ?? path
        all.append(.init(name: name, path: path, debugName: name, debugPath: path, codeId: buildID))
        return all.count - 1
    }
}

/// A thread of the profile while its stalls are collected. Tables have one array per column, as in the format.
private struct ProfileThread {
    private let name: String
    private let processName: String
    private let pid: String
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
        var data: Profile.MarkerData
        var samples: [(stack: Int?, nanoseconds: Int64)]
    }

    init(_ report: StallReport) {
        name = plain(report.watched.label)
        pid = "\(report.process.pid)"
        let service = report.service?.name ?? report.process.executable ?? "process"
        processName = plain("\(service) on \(report.host.name)")
    }

    var firstNs: Int64? { stalls.map(\.startNs).min() }

    mutating func add(_ report: StallReport, _ libraries: inout Libraries) {
        var weighted = WeightedStacks()
        weighted.add(report)
        let samples = weighted.sorted.map { key, weight in
            (stack: stack(key.calls.map { weighted.calls[$0] }, &libraries), nanoseconds: weight.nanoseconds)
        }
        stalls.append(
            Stall(
                startNs: report.startedAt.unixNanoseconds,
                durationNs: max(0, report.durationNs),
                name: strings.number(of: plain(report.culpritName ?? report.kind.rawValue)),
                data: Profile.MarkerData(report),
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
        let library = libraries.number(of: module, buildID: call.buildID)
        let number = resources.number(of: library)
        if number == resourceNames.count { resourceNames.append(strings.number(of: libraries.all[library].name)) }
        return number
    }

    /// - Parameter start: the profile's start; times in the format are milliseconds since then.
    func finished(from start: Int64) -> Profile.Thread {
        let sorted = stalls.sorted { $0.startNs < $1.startNs }
        let milliseconds = { (moment: Int64) in Double(moment.subtractingSaturated(start)) / 1e6 }
        var samples = Profile.Samples()
        for stall in sorted {
            var moment = stall.startNs
            // Each stack is a pair of samples, because the Profiler draws from one sample to the next.
            for sample in stall.samples {
                samples.append(stack: sample.stack, time: milliseconds(moment), weight: 0)
                moment = moment.addingSaturated(sample.nanoseconds)
                samples.append(
                    stack: sample.stack,
                    time: milliseconds(moment),
                    weight: Double(sample.nanoseconds) / 1e6
                )
            }
            samples.append(stack: nil, time: milliseconds(moment), weight: 0)
        }
        return Profile.Thread(
            name: name,
            processName: processName,
            pid: pid,
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

/// Equal values get one number.
private struct Interned<Value: Hashable> {
    private(set) var all: [Value] = []
    private var numbers: [Value: Int] = [:]

    mutating func number(of value: Value) -> Int {
        if let known = numbers[value] { return known }
        numbers[value] = all.count
        all.append(value)
        return all.count - 1
    }
}

// MARK: The format

/// A column of nulls or of one value, for table columns that this export does not use.
private struct Constant<Value: Encodable>: Encodable {
    let value: Value
    let count: Int

    func encode(to encoder: any Encoder) throws {
        var list = encoder.unkeyedContainer()
        for _ in 0..<count { try list.encode(value) }
    }
}

private struct Profile: Encodable {
    let meta: Meta
    let libs: [Library]
    let threads: [Thread]

    struct Meta: Encodable {
        let interval = 1
        /// Milliseconds since 1970.
        let startTime: Double
        let processType = 0
        let product = "stall-monitor"
        let stackwalk = 1
        let version = 30
        let preprocessedProfileVersion = 48
        let symbolicated = true
        let debug = false
        let usesOnlyOneStackType = true
        let doesNotUseFrameImplementation = true
        let sourceCodeIsNotOnSearchfox = true
        let categories = [Category(name: "Other", color: "grey"), Category(name: "Own code", color: "orange")]
        let extensions = Extensions()
        let sampleUnits = ["time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"]
        let markerSchema = [MarkerSchema()]
    }

    struct Category: Encodable {
        let name: String
        let color: String
        let subcategories = ["Other"]
    }

    struct Extensions: Encodable {
        let length = 0
        let id: [String] = []
        let name: [String] = []
        let baseURL: [String] = []
    }

    struct MarkerSchema: Encodable {
        let name = "Stall"
        let display = ["marker-chart", "marker-table", "timeline-overview"]
        let chartLabel = "{marker.name}: {marker.data.verdict}"
        let tooltipLabel = "{marker.name}"
        let tableLabel = "{marker.data.verdict}: {marker.data.cause}"
        let data = ["verdict", "cause", "severity", "state", "fingerprint", "report"].map(Field.init)

        struct Field: Encodable {
            let key: String
            let label: String
            let format = "string"
            let searchable = true

            init(_ key: String) { (self.key, label) = (key, key.capitalizedFirst) }
        }
    }

    struct MarkerData: Encodable {
        let type = "Stall"
        let verdict: String
        let cause: String
        let severity: String
        let state: String
        let fingerprint: String
        let report: String

        init(_ stall: StallReport) {
            (verdict, cause) = (stall.cause.verdict.canonical.rawValue, plain(stall.cause.summary))
            (severity, state) = (stall.severity.rawValue, stall.state.rawValue)
            (fingerprint, report) = (stall.fingerprint.description, stall.id.description)
        }
    }

    struct Library: Encodable {
        let arch = ""
        let name: String
        let path: String
        let debugName: String
        let debugPath: String
        let breakpadId = ""
        let codeId: String?
    }

    struct Thread: Encodable {
        let name: String
        let processName: String
        let pid: String
        let tid = 0
        let processType = "default"
        let isMainThread = true
        let processStartupTime = 0
        let processShutdownTime: Int? = nil
        let registerTime = 0
        let unregisterTime: Int? = nil
        let pausedRanges: [Int] = []
        let samples: Samples
        let markers: Markers
        let stackTable: StackTable
        let frameTable: FrameTable
        let funcTable: FunctionTable
        let resourceTable: ResourceTable
        let nativeSymbols = NativeSymbols()
        let stringArray: [String]
    }

    struct Samples: Encodable {
        private(set) var length = 0
        private(set) var stack: [Int?] = []
        private(set) var time: [Double] = []
        private(set) var weight: [Double] = []
        let weightType = "tracing-ms"

        mutating func append(stack: Int?, time: Double, weight: Double) {
            length += 1
            self.stack.append(stack)
            self.time.append(time)
            self.weight.append(weight)
        }
    }

    struct Markers: Encodable {
        let length: Int
        let data: [MarkerData]
        let name: [Int]
        let startTime: [Double]
        let endTime: [Double]
        /// 1: an interval.
        let phase: Constant<Int>
        let category: Constant<Int>

        init(data: [MarkerData], name: [Int], startTime: [Double], endTime: [Double]) {
            (length, self.data, self.name, self.startTime, self.endTime) = (data.count, data, name, startTime, endTime)
            (phase, category) = (Constant(value: 1, count: data.count), Constant(value: 0, count: data.count))
        }
    }

    struct StackTable: Encodable {
        let length: Int
        let frame: [Int]
        let prefix: [Int?]
        let category: [Int]
        let subcategory: Constant<Int>

        init(frame: [Int], prefix: [Int?], category: [Int]) {
            (length, self.frame, self.prefix, self.category) = (frame.count, frame, prefix, category)
            subcategory = Constant(value: 0, count: frame.count)
        }
    }

    struct FrameTable: Encodable {
        let length: Int
        let address: Constant<Int>
        let inlineDepth: Constant<Int>
        let category: [Int]
        let subcategory: Constant<Int>
        let `func`: [Int]
        let nativeSymbol: Constant<Int?>
        let innerWindowID: Constant<Int?>
        let implementation: Constant<Int?>
        let line: [Int?]
        let column: Constant<Int?>

        init(`func`: [Int], line: [Int?], category: [Int]) {
            let count = `func`.count
            let (zero, null) = (Constant(value: 0, count: count), Constant<Int?>(value: nil, count: count))
            (length, self.func, self.line, self.category) = (count, `func`, line, category)
            (address, inlineDepth, subcategory) = (Constant(value: -1, count: count), zero, zero)
            (nativeSymbol, innerWindowID, implementation, column) = (null, null, null, null)
        }
    }

    struct FunctionTable: Encodable {
        let length: Int
        let name: [Int]
        let isJS: Constant<Bool>
        let relevantForJS: Constant<Bool>
        let resource: [Int]
        let fileName: [Int?]
        let lineNumber: Constant<Int?>
        let columnNumber: Constant<Int?>

        init(name: [Int], resource: [Int], fileName: [Int?]) {
            (length, self.name, self.resource, self.fileName) = (name.count, name, resource, fileName)
            let no = Constant(value: false, count: name.count)
            let null = Constant<Int?>(value: nil, count: name.count)
            (isJS, relevantForJS, lineNumber, columnNumber) = (no, no, null, null)
        }
    }

    struct ResourceTable: Encodable {
        let length: Int
        let lib: [Int]
        let name: [Int]
        let host: Constant<Int?>
        /// 1: a library.
        let type: Constant<Int>

        init(lib: [Int], name: [Int]) {
            (length, self.lib, self.name) = (lib.count, lib, name)
            (host, type) = (Constant(value: nil, count: lib.count), Constant(value: 1, count: lib.count))
        }
    }

    /// Empty: functions are already named.
    struct NativeSymbols: Encodable {
        let length = 0
        let libIndex: [Int] = []
        let address: [Int] = []
        let name: [Int] = []
        let functionSize: [Int] = []
    }
}

extension String {
    fileprivate var capitalizedFirst: String { prefix(1).uppercased() + dropFirst() }
}
