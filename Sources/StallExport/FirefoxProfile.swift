import StallReports

/// The profile as the Profiler reads it: tables have one array per column.
struct FirefoxProfile: Encodable {
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

    struct Library: Encodable, Hashable {
        let arch = ""
        let name: String
        let path: String
        let debugName: String
        let debugPath: String
        let breakpadId = ""
        let codeId: String?

        init(path: String, buildID: String?) {
            (name, self.path, codeId) = (fileName(ofPath: path), path, buildID)
            (debugName, debugPath) = (name, path)
        }
    }

    struct Thread: Encodable {
        let name: String
        let processName: String
        let pid: String
        let tid = 0
        let processType = "default"
        let isMainThread: Bool
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

    /// A column of nulls or of one value, for table columns that this export does not use.
    struct Constant<Value: Encodable>: Encodable {
        let value: Value
        let count: Int

        func encode(to encoder: any Encoder) throws {
            var list = encoder.unkeyedContainer()
            for _ in 0..<count { try list.encode(value) }
        }
    }
}

extension String {
    fileprivate var capitalizedFirst: String { prefix(1).uppercased() + dropFirst() }
}
