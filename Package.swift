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
let c: [CSetting] = [.treatAllWarnings(as: .error), .enableWarning("all"), .enableWarning("extra")]
let gnu: [CSetting] = c + [.define("_GNU_SOURCE")]

/// A library of this package.
func module(
    _ name: String,
    _ dependencies: [Target.Dependency] = [],
    path: String? = nil,
    exclude: [String] = [],
    linking: [LinkerSetting] = []
) -> Target {
    .target(
        name: name,
        dependencies: dependencies,
        path: path,
        exclude: exclude,
        swiftSettings: swift,
        linkerSettings: linking
    )
}

/// The tests of a target.
func tests(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies, exclude: exclude, swiftSettings: swift)
}

/// A program under Tests/Fixtures, in a folder of its name.
func fixture(
    _ name: String,
    _ dependencies: [Target.Dependency],
    path: String? = nil,
    exclude: [String] = [],
    settings: [SwiftSetting] = swift
) -> Target {
    .executableTarget(
        name: name,
        dependencies: dependencies,
        path: "Tests/Fixtures/\(path ?? name)",
        exclude: exclude,
        swiftSettings: settings
    )
}

/// C under Tests/Fixtures.
func cFixture(_ name: String, _ dependencies: [Target.Dependency] = [], settings: [CSetting] = []) -> Target {
    .target(name: name, dependencies: dependencies, path: "Tests/Fixtures/\(name)", cSettings: gnu + settings)
}

/// A product of another package, for those who enable a trait.
func product(_ name: String, of package: String? = nil, for trait: String) -> Target.Dependency {
    .product(name: name, package: package ?? name, condition: .when(traits: [trait]))
}

let configuration = product("Configuration", of: "swift-configuration", for: "Service")
let logging = product("Logging", of: "swift-log", for: "Service")
let metrics = product("CoreMetrics", of: "swift-metrics", for: "Service")
let metricsTestKit = product("MetricsTestKit", of: "swift-metrics", for: "Service")
let lifecycle = product("ServiceLifecycle", of: "swift-service-lifecycle", for: "Service")
let signals = product("UnixSignals", of: "swift-service-lifecycle", for: "Service")
let tracing = product("Tracing", of: "swift-distributed-tracing", for: "Tracing")
let inMemoryTracing = product("InMemoryTracing", of: "swift-distributed-tracing", for: "Tracing")
let system = product("SystemPackage", of: "swift-system", for: "Service")

let package = Package(
    name: "stall-monitor",
    products: [
        .executable(name: "stall-monitor", targets: ["stall-monitor"]),
        .library(name: "RunLoopKit", targets: ["RunLoopKit"]),
        .library(name: "RunLoopPorts", targets: ["RunLoopPorts"]),
        .library(name: "StackCapture", targets: ["StackCapture", "Symbolication"]),
        .library(name: "StallReports", targets: ["StallReports"]),
        .library(name: "StallGate", targets: ["StallGate"]),
        .library(name: "StallExport", targets: ["StallExport"]),
        // For the collector, a package of its own (Sources/Collector).
        .library(name: "GzipCompression", targets: ["GzipCompression"]),
        .library(name: "StallMonitor", targets: ["StallMonitor"]),
        .library(name: "StallMonitorLoops", targets: ["StallMonitorLoops"]),
        .library(name: "StallMonitorService", targets: ["StallMonitorService"]),
        .library(name: "StallTesting", targets: ["StallTesting"]),
    ],
    // Each stands for the packages or libraries it needs. Without any (`traits: []`) no package is resolved, and there are the products up
    // to `StallMonitorLoops`.
    traits: [
        .default(enabledTraits: ["Command", "Service", "Symbols", "Tracing", "YAML"]),
        .trait(
            name: "Command",
            description: "The command stall-monitor: swift-argument-parser.",
            enabledTraits: ["Symbols"]
        ),
        .trait(name: "Symbols", description: "Lines and inlined calls in a server's own reports: libdw and libelf."),
        .trait(
            name: "Service",
            description: "StallMonitorService: swift-configuration, -log, -metrics, -service-lifecycle."
        ),
        .trait(
            name: "Tracing",
            description: "Spans of stalls in StallMonitorService: swift-distributed-tracing.",
            enabledTraits: ["Service"]
        ),
        .trait(
            name: "YAML",
            description: "Configuration files of StallMonitorService in YAML: Yams.",
            enabledTraits: ["Service"]
        ),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(
            url: "https://github.com/apple/swift-configuration.git",
            from: "1.4.0",
            traits: [.trait(name: "YAML", condition: .when(traits: ["YAML"]))]
        ),
        .package(url: "https://github.com/apple/swift-distributed-tracing.git", from: "1.3.0"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.7.0"),
        .package(url: "https://github.com/apple/swift-system.git", from: "1.8.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.8.0"),
        // For the command: line numbers of a budget's file. swift-configuration reads its files by it, too.
        .package(url: "https://github.com/jpsim/Yams", "6.0.0"..<"7.0.0"),
    ],
    targets: [
        // The run loop.
        .target(name: "CRunLoopShims", cSettings: c),
        module("Locking", ["CRunLoopShims"]),
        module("RunLoopKit", ["CRunLoopShims", "Locking"], exclude: ["README.md"]),
        // Messages between threads and processes.
        .target(name: "CRunLoopPorts", cSettings: c),
        module("RunLoopPorts", ["CRunLoopPorts", "CRunLoopShims", "Locking", "RunLoopKit"]),

        // A thread's stack, and names for it. zlib is for compressed unwind tables, stdc++ for its demangler; the Swift runtime needs it anyway.
        .target(name: "CStackCapture", exclude: ["README.md"], cSettings: gnu, linkerSettings: [.linkedLibrary("z")]),
        module("StackCapture", ["CStackCapture"]),
        .systemLibrary(name: "CElf"),
        .systemLibrary(name: "CElfUtils", providers: [.apt(["libdw-dev"])]),
        .systemLibrary(name: "CZlib", providers: [.apt(["zlib1g-dev"])]),
        module(
            "Symbolication",
            ["CElf", "CZlib", .target(name: "CElfUtils", condition: .when(traits: ["Symbols"]))],
            linking: [.linkedLibrary("stdc++")]
        ),

        // The report, what is decided from it, and other tools' formats of it.
        module("StallReports"),
        module("StallGate", ["StallReports"]),
        module("StallExport", ["StallReports"]),

        // To an OTLP receiver. For the command: Foundation's HTTP client needs libcurl.
        module("GzipCompression", ["CZlib"]),
        module("StallShipping", ["GzipCompression", "StallExport", "StallReports"]),

        // The monitor. What counts as a stall is decided from values alone: without threads, clocks, captures and disks. Why a thread was
        // stalled is decided from the kernel's counts and the place where it was found.
        module("StallDetection", ["RunLoopKit", "StallReports"]),
        .target(name: "CMonitorShims", cSettings: c),
        module("StallDiagnosis", ["CMonitorShims", "RunLoopKit", "StackCapture", "StallReports"]),
        module(
            "StallMonitor",
            [
                "CMonitorShims", "Locking", "RunLoopKit", "StackCapture", "StallDetection", "StallDiagnosis",
                "StallReports",
                "Symbolication",
            ]
        ),
        module(
            "StallMonitorService",
            ["RunLoopKit", "StallMonitor", "StallReports", configuration, logging, metrics, lifecycle, system, tracing]
        ),

        // Loops of other makes. Linking it makes the program's waits pass through it.
        .target(name: "CLoopHooks", dependencies: ["CRunLoopShims"], cSettings: c),
        module("StallMonitorLoops", ["CLoopHooks", "Locking", "RunLoopKit", "StallMonitor", "StallReports"]),

        // For tests of servers, with the toolchain's Swift Testing. Not linked into our own tests, each of which has a monitor of its own;
        // Tests/Embedding tests it.
        module(
            "StallTesting",
            ["Locking", "RunLoopKit", "StallDetection", "StallMonitor", "StallMonitorLoops", "StallReports"]
        ),

        // Other processes' loops. For the command: a server that watches itself has none of it.
        .target(name: "CProcessWatch", cSettings: gnu),
        module(
            "ProcessWatch",
            [
                "CProcessWatch", "RunLoopKit", "StackCapture", "StallDetection", "StallDiagnosis", "StallMonitor",
                "StallReports", "Symbolication",
            ]
        ),

        // Stalls made on purpose, and the judge of what the monitor says about them. Not a product: for the tests.
        .target(name: "CStallCorpus", cSettings: c),
        module("StallCorpus", ["CStallCorpus", "RunLoopKit", "StallMonitor", "StallReports"]),

        // The command.
        .executableTarget(
            name: "stall-monitor",
            dependencies: [
                "ProcessWatch", "RunLoopKit", "StackCapture", "StallExport", "StallGate", "StallMonitor",
                "StallReports",
                "StallShipping", "Symbolication",
                product("ArgumentParser", of: "swift-argument-parser", for: "Command"),
                product("Yams", for: "Command"),
            ],
            swiftSettings: swift
        ),

        // What tests of several targets share.
        module("TestSupport", ["RunLoopKit"], path: "Tests/Support"),
        module("LoopTestSupport", ["RunLoopKit", "RunLoopPorts"], path: "Tests/LoopSupport"),

        // Programs that tests start, and what those are made of.
        fixture("stall-corpus", ["StallCorpus", "StallReports"]),
        fixture("RunLoopFixture", ["RunLoopKit", "RunLoopPorts", "CRunLoopShims"]),
        fixture("AsyncMainFixture", ["RunLoopKit"]),
        fixture("async-callers", ["StackCapture", "Symbolication"]),
        fixture("ConcurrencyFixture", ["RunLoopKit"]),
        fixture("ClientFixture", ["RunLoopKit", "RunLoopPorts"], settings: client),
        fixture("LoopDifferential", ["RunLoopKit", "CFoundationRunLoop"]),
        fixture("LoopCounts", ["RunLoopKit", "RunLoopPorts", "CAllocations"]),
        fixture("threshold-host", ["RunLoopKit", "RunLoopPorts", "StallMonitor", "StallReports"]),
        fixture("WatchLoad", ["StallMonitor", "RunLoopKit"]),
        fixture("FaultFixture", ["CFaults", "CRunLoopShims", "RunLoopKit"]),
        fixture("ForkFixture", ["CFaults", "CRunLoopShims", "RunLoopKit", "RunLoopPorts"]),
        fixture("LoopChurn", ["CFaults", "RunLoopKit"]),
        fixture("PortsFixture", ["RunLoopKit", "RunLoopPorts", "CRunLoopPorts", "CRunLoopShims"]),
        fixture("PortsExample", ["RunLoopKit", "RunLoopPorts"]),
        fixture(
            "doc-examples",
            ["RunLoopKit", "RunLoopPorts", "StallMonitor", "StallMonitorLoops", "StallReports"],
            settings: client
        ),
        fixture("capture-host", ["CStalls", "StackCapture", "Symbolication"]),
        fixture("coexistence-host", ["CCoexistence", "StackCapture"]),
        fixture("capture-trials", ["CTrials", "StackCapture", "Symbolication"], exclude: ["compare_stacks.py"]),
        fixture("SymbolBenchmark", ["Symbolication"]),
        fixture("DiskFixture", ["CDiskFaults", "RunLoopKit", "StallMonitor", "StallReports"]),
        fixture("mortal-host", ["CMortalHost", "RunLoopKit", "StallMonitor", "StallReports"]),
        fixture(
            "reader-fuzz",
            [
                "StallExport", "StallGate", "StallReports", "Symbolication",
                .product(name: "Yams", package: "Yams", condition: .when(traits: ["Command"])),
            ]
        ),
        fixture("pause-host", ["RunLoopKit", "StallMonitor", "StallReports"]),
        fixture(
            "loop-host",
            ["CEventLoops", "CLoopHooks", "RunLoopKit", "StallMonitor", "StallMonitorLoops", "StallReports"]
        ),
        fixture("pool-host", ["RunLoopKit", "StallMonitor", "StallMonitorLoops", "StallReports"]),
        fixture("shutdown-host", ["StallMonitor", "StallMonitorLoops", "StallReports"]),
        fixture(
            "service-host",
            ["StallMonitor", "StallMonitorService", logging, metricsTestKit, lifecycle, signals],
            settings: client
        ),
        fixture("cause-host", ["RunLoopKit", "StallMonitor", "StallReports"], path: "CauseHost"),
        .executableTarget(name: "sample-target", path: "Tests/Fixtures/SampleTarget", cSettings: gnu),
        cFixture("CEventLoops"),
        cFixture("CLocks"),
        cFixture("CStalls"),
        cFixture("CCoexistence"),
        cFixture("CTrials", ["CStackCapture"], settings: [.headerSearchPath("../../../Sources/CStackCapture")]),
        // Not among the tests' dependencies: their objects would be linked into the test bundle, with the allocator and the system calls
        // that they put in the place of the C library's.
        cFixture("CFoundationRunLoop"),
        cFixture("CAllocations"),
        cFixture("CFaults"),
        cFixture("CDiskFaults"),
        cFixture("CMortalHost"),

        tests(
            "RunLoopKitTests",
            [
                "RunLoopKit", "RunLoopPorts", "CRunLoopShims", "RunLoopFixture", "AsyncMainFixture",
                "ConcurrencyFixture",
                "ClientFixture", "LoopTestSupport", "TestSupport",
            ],
            exclude: ["Foreign/README.md"]
        ),
        tests(
            "RunLoopPortsTests",
            [
                "RunLoopKit", "RunLoopPorts", "CRunLoopPorts", "CRunLoopShims", "PortsFixture", "PortsExample",
                "LoopTestSupport", "TestSupport",
            ]
        ),
        tests(
            "StackCaptureTests",
            [
                "CStackCapture", "CStalls", "async-callers", "capture-host", "capture-trials", "coexistence-host",
                "sample-target", "StackCapture", "Symbolication", "TestSupport",
            ]
        ),
        tests("SymbolicationTests", ["Symbolication", "SymbolBenchmark", "TestSupport"]),
        tests("StallCorpusTests", ["StallCorpus", "StallReports", "stall-corpus", "TestSupport"]),
        tests("StallReportsTests", ["StallReports", "TestSupport"]),
        tests("StallGateTests", ["StallGate", "StallReports"]),
        tests("StallExportTests", ["StallExport", "StallReports"]),
        tests("StallShippingTests", ["StallShipping", "StallReports"]),
        tests("StallDetectionTests", ["RunLoopKit", "StallDetection", "StallReports", "TestSupport"]),
        tests(
            "StallDiagnosisTests",
            ["CRunLoopShims", "RunLoopKit", "StackCapture", "StallDiagnosis", "StallReports"]
        ),
        tests(
            "StallMonitorTests",
            [
                "CLocks", "CRunLoopShims", "RunLoopKit", "StackCapture", "StallDetection", "StallDiagnosis",
                "StallMonitor",
                "StallReports", "Symbolication", "TestSupport", "cause-host", "pause-host", "threshold-host",
            ]
        ),
        tests("StallMonitorLoopsTests", ["loop-host", "shutdown-host", "StallReports", "TestSupport"]),
        tests(
            "StallMonitorServiceTests",
            [
                "StallMonitorService", "StallMonitor", "StallReports", "RunLoopKit", "TestSupport", "service-host",
                configuration, logging, metrics, metricsTestKit, tracing, inMemoryTracing,
            ]
        ),
        tests(
            "ProcessWatchTests",
            [
                "CProcessWatch", "ProcessWatch", "RunLoopKit", "StackCapture", "StallMonitor", "StallReports",
                "TestSupport",
            ]
        ),
        tests(
            "CommandTests",
            [
                "stall-monitor", "stall-corpus", "reader-fuzz", "sample-target", "ProcessWatch", "StallReports",
                "StallGate",
                "StallShipping",
                "TestSupport",
            ],
            exclude: ["Collector/canned_server.py", "Shipping/otlp_receiver.py"]
        ),
    ]
)
