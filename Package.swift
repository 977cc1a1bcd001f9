// swift-tools-version: 6.2
import PackageDescription

/// Every target of ours: Swift 6 mode, checked unsafety, warnings as errors. SwiftPM drops the last one for dependants.
let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
/// The settings of a strict client.
let client: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
let clients: Set = ["ClientFixture", "doc-examples", "service-host"]
let c: [CSetting] = [.treatAllWarnings(as: .error), .enableWarning("all"), .enableWarning("extra")]
let gnu: [CSetting] = c + [.define("_GNU_SOURCE")]
let trials: [CSetting] = gnu + [.headerSearchPath("../../../Sources/CStackCapture")]

/// Products of other packages, for those who enable one of the traits.
let products: [(traits: Set<String>, package: String, names: Set<String>)] = [
    (["Command"], "swift-argument-parser", ["ArgumentParser"]),
    (["Command", "YAML"], "Yams", ["Yams"]),
    (["Service"], "swift-configuration", ["Configuration"]),
    (["Service"], "swift-log", ["Logging"]),
    (["Service"], "swift-metrics", ["CoreMetrics", "MetricsTestKit"]),
    (["Service"], "swift-service-lifecycle", ["ServiceLifecycle", "UnixSignals"]),
    (["Service"], "swift-system", ["SystemPackage"]),
    (["Tracing"], "swift-distributed-tracing", ["Tracing", "InMemoryTracing"]),
]

/// What some targets have besides: files beside their sources, a folder of another name.
let excluded = [
    "RunLoopKit": ["README.md"], "RunLoopKitTests": ["Foreign/README.md"], "capture-trials": ["compare_stacks.py"],
    "CommandTests": ["Collector/canned_server.py", "Shipping/otlp_receiver.py"],
    "report-flood": ["follow.py", "measure.py"],
    "peer-host": ["check_spans.py"],
]
let paths = ["TestSupport": "Tests/Support", "LoopTestSupport": "Tests/LoopSupport"]

/// Makes a target of each entry: its name, and those of the targets and products that it uses.
func targets(_ table: KeyValuePairs<String, [String]>, _ make: (String, [Target.Dependency]) -> Target) -> [Target] {
    table.map { name, used in
        let target = make(name, used.map(dependency))
        target.path = target.path ?? paths[name]
        target.exclude = excluded[name] ?? []
        target.swiftSettings = clients.contains(name) ? client : swift
        return target
    }
}

func dependency(_ name: String) -> Target.Dependency {
    guard let product = products.first(where: { $0.names.contains(name) }) else {
        return .target(name: name, condition: name == "CElfUtils" ? .when(traits: ["Symbols"]) : nil)
    }
    return .product(name: name, package: product.package, condition: .when(traits: product.traits))
}

let libraries = targets([
    // The run loop, and messages between threads and processes.
    "Locking": ["CRunLoopShims"],
    "RunLoopKit": ["CRunLoopShims", "Locking"],
    "RunLoopPorts": ["CRunLoopPorts", "CRunLoopShims", "Locking", "RunLoopKit"],
    // A thread's stack, and names for it.
    "StackCapture": ["CStackCapture"],
    "Symbolication": ["CElf", "CElfUtils", "CZlib"],
    // The report, and the directory to which a server writes it.
    "StallReports": [],
    // Readers of report directories; what is decided from reports, and other tools' formats of them; to an OTLP receiver. For the command
    // and the collector: a server has none of it.
    "StallReading": ["StallReports"],
    "StallGate": ["StallReading", "StallReports"],
    "StallIndex": ["CIndexSQLite", "StallReading", "StallReports"],
    "StallExport": ["StallReports"],
    "GzipCompression": ["CZlib"],
    "WebRequests": ["CCurl"],
    "StallShipping": ["GzipCompression", "StallExport", "StallReading", "StallReports", "WebRequests"],
    // The monitor. What counts as a stall is decided from values alone: without threads, clocks, captures and disks. Why a
    // thread was stalled is decided from the kernel's counts and the place where it was found.
    "StallDetection": ["RunLoopKit", "StallReports"],
    "StallDiagnosis": ["CMonitorShims", "RunLoopKit", "StackCapture", "StallReports"],
    "StallMonitor": [
        "CMonitorShims", "CRunLoopShims", "Locking", "RunLoopKit", "StackCapture", "StallDetection", "StallDiagnosis",
        "StallReports", "Symbolication",
    ],
    "StallMonitorService": [
        "RunLoopKit", "StallDetection", "StallMonitor", "StallReports", "Configuration", "CoreMetrics", "Logging",
        "ServiceLifecycle", "SystemPackage", "Tracing", "Yams",
    ],
    // Loops of other makes. Linking it makes the program's waits pass through it.
    "StallMonitorLoops": ["CLoopHooks", "Locking", "RunLoopKit", "StallMonitor", "StallReports"],
    // For tests of servers. Not linked into our own tests, each of which has a monitor of its own; Tests/Embedding tests it.
    "StallTesting": ["Locking", "RunLoopKit", "StallDetection", "StallMonitor", "StallMonitorLoops", "StallReports"],
    "StallTestingXCTest": ["StallTesting"],
    // Other processes' loops. For the command: a server that watches itself has none of it.
    "ProcessWatch": [
        "CProcessWatch", "RunLoopKit", "StackCapture", "StallDetection", "StallDiagnosis", "StallMonitor",
        "StallReports", "Symbolication",
    ],
    // Stalls made on purpose, and the judge of what the monitor says about them; what tests share. No products.
    "StallCorpus": ["CStallCorpus", "RunLoopKit", "StallMonitor", "StallReading", "StallReports"],
    "TestSupport": ["RunLoopKit", "StallReports"],
    "LoopTestSupport": ["RunLoopKit", "RunLoopPorts"],
]) { .target(name: $0, dependencies: $1) }
// A lock's memory (`Cell`).
libraries.first { $0.name == "Locking" }?.swiftSettings =
    swift + ["RawLayout", "BuiltinModule"].map { SwiftSetting.enableExperimentalFeature($0) }
// Its demangler; the Swift runtime needs it anyway.
libraries.first { $0.name == "Symbolication" }?.linkerSettings = [.linkedLibrary("stdc++")]

let programs = targets([
    "stall-monitor": [
        "ProcessWatch", "RunLoopKit", "StackCapture", "StallExport", "StallGate", "StallIndex", "StallMonitor",
        "StallReading", "StallReports", "StallShipping", "Symbolication", "ArgumentParser", "Yams",
    ],
    // What tests start, each in a folder of its name.
    "AsyncMainFixture": ["RunLoopKit"],
    "ClientFixture": ["RunLoopKit", "RunLoopPorts"],
    "ConcurrencyFixture": ["RunLoopKit"],
    "DiskFixture": ["CDiskFaults", "RunLoopKit", "StallMonitor", "StallReading", "StallReports"],
    "FaultFixture": ["CFaults", "CRunLoopShims", "RunLoopKit"],
    "ForkFixture": ["CFaults", "CRunLoopShims", "Locking", "RunLoopKit", "RunLoopPorts"],
    "LoopChurn": ["CFaults", "RunLoopKit"],
    "LoopCounts": ["CAllocations", "RunLoopKit", "RunLoopPorts"],
    "LoopDifferential": ["CFoundationRunLoop", "RunLoopKit"],
    "PortsExample": ["RunLoopKit", "RunLoopPorts"],
    "PortsFixture": ["CRunLoopPorts", "CRunLoopShims", "RunLoopKit", "RunLoopPorts"],
    "RunLoopFixture": ["CRunLoopShims", "RunLoopKit", "RunLoopPorts"],
    "SymbolBenchmark": ["Symbolication"],
    "WatchLoad": ["RunLoopKit", "StallMonitor"],
    "async-callers": ["StackCapture", "Symbolication"],
    "capture-host": ["CStalls", "StackCapture", "Symbolication"],
    "capture-trials": ["CTrials", "StackCapture", "Symbolication"],
    "cause-host": ["RunLoopKit", "StallMonitor", "StallReading", "StallReports"],
    "coexistence-host": ["CCoexistence", "StackCapture"],
    "death-host": ["CDeathHost", "RunLoopKit", "StallMonitor", "StallReading", "StallReports"],
    "doc-examples": [
        "RunLoopKit", "RunLoopPorts", "StallMonitor", "StallMonitorLoops", "StallReading", "StallReports",
    ],
    "loop-host": ["CEventLoops", "CLoopHooks", "RunLoopKit", "StallMonitor", "StallMonitorLoops", "StallReports"],
    "peer-host": [
        "StallMonitor", "StallMonitorService", "CoreMetrics", "InMemoryTracing", "Logging", "ServiceLifecycle",
        "Tracing",
        "UnixSignals",
    ],
    "pause-host": ["RunLoopKit", "StallMonitor", "StallReports"],
    "pool-host": ["RunLoopKit", "StallMonitor", "StallMonitorLoops", "StallReports"],
    "pool-target": [],
    "report-flood": ["StallReports"],
    "reader-fuzz": ["StallExport", "StallGate", "StallReading", "StallReports", "Symbolication", "Yams"],
    "service-host": [
        "StallMonitor", "StallMonitorService", "Logging", "MetricsTestKit", "ServiceLifecycle", "UnixSignals",
    ],
    "shutdown-host": ["StallMonitor", "StallMonitorLoops", "StallReports"],
    "stall-corpus": ["StallCorpus", "StallReports"],
    "threshold-host": ["RunLoopKit", "RunLoopPorts", "StallMonitor", "StallReports"],
]) { .executableTarget(name: $0, dependencies: $1, path: $0 == "stall-monitor" ? nil : "Tests/Fixtures/\($0)") }

let tests = targets([
    "RunLoopKitTests": [
        "CRunLoopShims", "RunLoopKit", "RunLoopPorts", "LoopTestSupport", "TestSupport", "AsyncMainFixture",
        "ClientFixture", "ConcurrencyFixture", "RunLoopFixture",
    ],
    "RunLoopPortsTests": [
        "CRunLoopPorts", "CRunLoopShims", "RunLoopKit", "RunLoopPorts", "LoopTestSupport", "TestSupport",
        "PortsExample", "PortsFixture",
    ],
    "StackCaptureTests": [
        "CStackCapture", "CStalls", "StackCapture", "Symbolication", "TestSupport", "async-callers", "capture-host",
        "capture-trials", "coexistence-host", "sample-target",
    ],
    "SymbolicationTests": ["Symbolication", "TestSupport", "SymbolBenchmark"],
    "StallReportsTests": ["StallReading", "StallReports", "TestSupport"],
    "StallIndexTests": ["StallIndex", "StallReading", "StallReports", "TestSupport", "report-flood"],
    "StallGateTests": ["StallGate", "StallReading", "StallReports"],
    "StallExportTests": ["StallExport", "StallReports"],
    "StallShippingTests": [
        "StallExport", "StallReading", "StallReports", "StallShipping", "TestSupport", "WebRequests",
    ],
    "StallDetectionTests": ["RunLoopKit", "StallDetection", "StallReports", "TestSupport"],
    "StallDiagnosisTests": ["CRunLoopShims", "RunLoopKit", "StackCapture", "StallDiagnosis", "StallReports"],
    "StallMonitorTests": [
        "CLocks", "CRunLoopShims", "RunLoopKit", "RunLoopPorts", "StackCapture", "StallDetection", "StallDiagnosis",
        "StallMonitor", "StallReading", "StallReports", "Symbolication", "TestSupport", "cause-host", "pause-host",
        "threshold-host",
    ],
    "StallMonitorLoopsTests": [
        "StallReading", "StallReports", "TestSupport", "loop-host", "pool-host", "shutdown-host",
    ],
    "StallMonitorServiceTests": [
        "RunLoopKit", "StallDetection", "StallMonitor", "StallMonitorService", "StallReading", "StallReports",
        "TestSupport", "Configuration", "CoreMetrics", "InMemoryTracing", "Logging", "MetricsTestKit", "Tracing",
        "service-host",
    ],
    "ProcessWatchTests": [
        "CProcessWatch", "CRunLoopShims", "ProcessWatch", "RunLoopKit", "StackCapture", "StallDetection",
        "StallMonitor", "StallReports", "Symbolication", "TestSupport",
    ],
    "StallCorpusTests": ["StallCorpus", "StallReports", "TestSupport", "stall-corpus"],
    "CommandTests": [
        "ProcessWatch", "RunLoopKit", "StackCapture", "StallExport", "StallGate", "StallMonitor", "StallReading",
        "StallReports", "StallShipping", "Symbolication", "TestSupport", "WebRequests",
        "pool-target", "reader-fuzz", "report-flood", "sample-target", "stall-corpus", "stall-monitor",
    ],
]) { .testTarget(name: $0, dependencies: $1) }

/// C. Of that under Tests/Fixtures only the first four are among the tests' dependencies: the others' objects would be linked into the
/// test bundle, with the allocator and the system calls that they put in the place of the C library's.
let sourcesInC: [Target] = ["CRunLoopShims", "CRunLoopPorts", "CStallCorpus"]
    .map { .target(name: $0, cSettings: c) }
let fixturesInC: [Target] = [
    "CEventLoops", "CLocks", "CStalls", "CCoexistence",
    "CFoundationRunLoop", "CAllocations", "CFaults", "CDiskFaults", "CDeathHost",
].map { .target(name: $0, path: "Tests/Fixtures/\($0)", cSettings: gnu) }
let othersInC: [Target] = [
    .target(name: "CLoopHooks", dependencies: ["CRunLoopShims"], cSettings: c),
    .target(name: "CMonitorShims", dependencies: ["CRunLoopShims"], cSettings: c),
    .target(name: "CProcessWatch", cSettings: gnu),
    // zlib is for compressed unwind tables.
    .target(name: "CStackCapture", exclude: ["README.md"], cSettings: gnu, linkerSettings: [.linkedLibrary("z")]),
    .systemLibrary(name: "CCurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(name: "CElf"),
    .systemLibrary(name: "CElfUtils", providers: [.apt(["libdw-dev"])]),
    .systemLibrary(name: "CIndexSQLite", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "CZlib", providers: [.apt(["zlib1g-dev"])]),
    .executableTarget(name: "sample-target", path: "Tests/Fixtures/SampleTarget", cSettings: gnu),
    .target(name: "CTrials", dependencies: ["CStackCapture"], path: "Tests/Fixtures/CTrials", cSettings: trials),
]

let yaml = Set(
    ["Reloading", "YAML"].map { Package.Dependency.Trait.trait(name: $0, condition: .when(traits: ["YAML"])) }
)
func library(_ name: String) -> Product { .library(name: name, targets: [name]) }

let package = Package(
    name: "stall-monitor",
    products: [
        .executable(name: "stall-monitor", targets: ["stall-monitor"]),
        .library(name: "StackCapture", targets: ["StackCapture", "Symbolication"]),
        // The report, and the readers of report directories.
        .library(name: "StallReports", targets: ["StallReports", "StallReading"]),
        // For the collector, a package of its own (Sources/Collector).
        library("GzipCompression"),
        library("WebRequests"),
    ]
        + ["RunLoopKit", "RunLoopPorts", "StallGate", "StallExport"].map(library)
        + ["StallMonitor", "StallMonitorLoops", "StallMonitorService", "StallTesting", "StallTestingXCTest"].map(
            library
        ),
    // Each stands for the packages or libraries it needs. Without any (`traits: []`) no package is resolved, and there are all
    // libraries except `StallMonitorService`.
    traits: [
        .default(enabledTraits: ["Command", "Service", "Symbols", "Tracing", "YAML"]),
        .trait(name: "Command", description: "The command stall-monitor: its packages.", enabledTraits: ["Symbols"]),
        .trait(name: "Symbols", description: "Lines and inlined calls in a server's own reports: libdw and libelf."),
        .trait(name: "Service", description: "StallMonitorService: swift-configuration, -log, -metrics and others."),
        .trait(name: "Tracing", description: "Its spans: swift-distributed-tracing.", enabledTraits: ["Service"]),
        .trait(
            name: "YAML",
            description: "Its configuration files in YAML, also while it runs: Yams.",
            enabledTraits: ["Service"]
        ),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-configuration.git", from: "1.4.0", traits: yaml),
        .package(url: "https://github.com/apple/swift-distributed-tracing.git", from: "1.3.0"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.7.0"),
        .package(url: "https://github.com/apple/swift-system.git", from: "1.8.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.8.0"),
        // For the command: line numbers of a budget's file; for the service: the keys of its file. swift-configuration reads its files by it, too.
        .package(url: "https://github.com/jpsim/Yams", "6.0.0"..<"7.0.0"),
    ],
    targets: libraries + programs + tests + sourcesInC + fixturesInC + othersInC
)
