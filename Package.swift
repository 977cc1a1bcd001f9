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
/// What a client of ours has, if it is strict.
let client: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
let c: [CSetting] = [.treatAllWarnings(as: .error), .enableWarning("all"), .enableWarning("extra")]
let gnu: [CSetting] = c + [.define("_GNU_SOURCE")]

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
    // What other packages are for. One that names none (`traits: []`) resolves no package, and has the products up to `StallMonitorLoops`.
    traits: [
        .default(enabledTraits: ["Command", "Service", "YAML"]),
        .trait(name: "Command", description: "The command stall-monitor: swift-argument-parser."),
        .trait(
            name: "Service",
            description: "StallMonitorService: swift-configuration, swift-log, swift-metrics, swift-service-lifecycle."
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
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.7.0"),
        .package(url: "https://github.com/apple/swift-system.git", from: "1.8.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.8.0"),
        // For the command: lines of a budget's file. swift-configuration reads its files by the same one.
        .package(url: "https://github.com/jpsim/Yams", "6.0.0"..<"7.0.0"),
    ],
    targets: [
        // The engine.
        .target(name: "CRunLoopShims", cSettings: c),
        .target(name: "Locking", dependencies: ["CRunLoopShims"], swiftSettings: swift),
        .target(
            name: "RunLoopKit",
            dependencies: ["CRunLoopShims", "Locking"],
            exclude: ["README.md"],
            swiftSettings: swift
        ),
        // Messages between threads and processes.
        .target(name: "CRunLoopPorts", cSettings: c),
        .target(
            name: "RunLoopPorts",
            dependencies: ["CRunLoopPorts", "CRunLoopShims", "Locking", "RunLoopKit"],
            swiftSettings: swift
        ),

        // A thread's stack, and names for it.
        // zlib for unwind tables that are compressed.
        .target(name: "CStackCapture", exclude: ["README.md"], cSettings: gnu, linkerSettings: [.linkedLibrary("z")]),
        .target(name: "StackCapture", dependencies: ["CStackCapture"], swiftSettings: swift),
        .systemLibrary(name: "CElfUtils", providers: [.apt(["libdw-dev", "zlib1g-dev"])]),
        .target(
            name: "Symbolication",
            dependencies: ["CElfUtils"],
            swiftSettings: swift,
            // For its demangler. The Swift runtime needs the library anyway.
            linkerSettings: [.linkedLibrary("stdc++")]
        ),

        // The report and what is decided from it.
        .target(name: "StallReports", swiftSettings: swift),
        .target(name: "StallGate", dependencies: ["StallReports"], swiftSettings: swift),
        // In other tools' formats.
        .target(name: "StallExport", dependencies: ["StallReports"], swiftSettings: swift),

        // To an OTLP receiver. For the command: Foundation's HTTP client needs libcurl.
        .systemLibrary(name: "CZlib", providers: [.apt(["zlib1g-dev"])]),
        .target(name: "GzipCompression", dependencies: ["CZlib"], swiftSettings: swift),
        .target(
            name: "StallShipping",
            dependencies: ["GzipCompression", "StallExport", "StallReports"],
            swiftSettings: swift
        ),

        // The monitor. What counts as a stall is decided by values alone: neither a thread, a clock, a capture nor a disk.
        .target(name: "StallDetection", dependencies: ["RunLoopKit", "StallReports"], swiftSettings: swift),
        .target(name: "CMonitorShims", cSettings: c),
        // Why a thread stood still: from what the kernel counted of it, and where it was found waiting.
        .target(
            name: "StallDiagnosis",
            dependencies: ["CMonitorShims", "RunLoopKit", "StackCapture", "StallReports"],
            swiftSettings: swift
        ),
        .target(
            name: "StallMonitor",
            dependencies: [
                "CMonitorShims", "Locking", "RunLoopKit", "StackCapture", "StallDetection", "StallDiagnosis",
                "StallReports", "Symbolication",
            ],
            swiftSettings: swift
        ),
        .target(
            name: "StallMonitorService",
            dependencies: [
                "StallMonitor",
                "StallReports",
                .product(name: "Configuration", package: "swift-configuration", condition: .when(traits: ["Service"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
                .product(name: "CoreMetrics", package: "swift-metrics", condition: .when(traits: ["Service"])),
                .product(
                    name: "ServiceLifecycle",
                    package: "swift-service-lifecycle",
                    condition: .when(traits: ["Service"])
                ),
                .product(name: "SystemPackage", package: "swift-system", condition: .when(traits: ["Service"])),
            ],
            swiftSettings: swift
        ),

        // Loops of other makes. Linking it has the program's waits pass through it.
        .target(name: "CLoopHooks", dependencies: ["CRunLoopShims"], cSettings: c),
        .target(
            name: "StallMonitorLoops",
            dependencies: ["CLoopHooks", "Locking", "RunLoopKit", "StallMonitor", "StallReports"],
            swiftSettings: swift
        ),

        // For tests of servers, with the toolchain's Swift Testing. Not linked into our own tests, each of which has a monitor of its own: tried
        // by those of Tests/Embedding.
        .target(
            name: "StallTesting",
            dependencies: [
                "Locking", "RunLoopKit", "StallDetection", "StallMonitor", "StallMonitorLoops", "StallReports",
            ],
            swiftSettings: swift
        ),

        // Other processes' loops. For the command: a server that watches itself has none of it.
        .target(name: "CProcessWatch", cSettings: gnu),
        .target(
            name: "ProcessWatch",
            dependencies: [
                "CProcessWatch", "RunLoopKit", "StackCapture", "StallDetection", "StallMonitor", "StallReports",
                "Symbolication",
            ],
            swiftSettings: swift
        ),

        // Stalls made on purpose, and the judge of what the monitor says of them. No product: for the tests.
        .target(name: "CStallCorpus", cSettings: c),
        .target(
            name: "StallCorpus",
            dependencies: ["CStallCorpus", "RunLoopKit", "StallMonitor", "StallReports"],
            swiftSettings: swift
        ),

        // The command.
        .executableTarget(
            name: "stall-monitor",
            dependencies: [
                "RunLoopKit",
                "StallReports",
                "StallGate",
                "StallExport",
                "StallShipping",
                "StallMonitor",
                "ProcessWatch",
                "StackCapture",
                "Symbolication",
                .product(
                    name: "ArgumentParser",
                    package: "swift-argument-parser",
                    condition: .when(traits: ["Command"])
                ),
                .product(name: "Yams", package: "Yams", condition: .when(traits: ["Command"])),
            ],
            swiftSettings: swift
        ),

        // What tests of several targets share.
        .target(name: "TestSupport", dependencies: ["RunLoopKit"], path: "Tests/Support", swiftSettings: swift),
        .target(
            name: "LoopTestSupport",
            dependencies: ["RunLoopKit", "RunLoopPorts"],
            path: "Tests/LoopSupport",
            swiftSettings: swift
        ),

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
        fixture("reader-fuzz", ["StallGate", "StallReports", "Symbolication"]),
        fixture("pause-host", ["RunLoopKit", "StallMonitor", "StallReports"]),
        fixture("loop-host", ["CEventLoops", "RunLoopKit", "StallMonitor", "StallMonitorLoops", "StallReports"]),
        fixture("pool-host", ["RunLoopKit", "StallMonitor", "StallMonitorLoops", "StallReports"]),
        fixture(
            "service-host",
            [
                "StallMonitor", "StallMonitorService",
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
                .product(name: "MetricsTestKit", package: "swift-metrics", condition: .when(traits: ["Service"])),
                .product(
                    name: "ServiceLifecycle",
                    package: "swift-service-lifecycle",
                    condition: .when(traits: ["Service"])
                ),
                .product(
                    name: "UnixSignals",
                    package: "swift-service-lifecycle",
                    condition: .when(traits: ["Service"])
                ),
            ],
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

        .testTarget(
            name: "RunLoopKitTests",
            dependencies: [
                "RunLoopKit", "RunLoopPorts", "CRunLoopShims", "RunLoopFixture", "AsyncMainFixture",
                "ConcurrencyFixture", "ClientFixture", "LoopTestSupport", "TestSupport",
            ],
            exclude: ["Foreign/README.md"],
            swiftSettings: swift
        ),
        .testTarget(
            name: "RunLoopPortsTests",
            dependencies: [
                "RunLoopKit", "RunLoopPorts", "CRunLoopPorts", "CRunLoopShims", "PortsFixture", "PortsExample",
                "LoopTestSupport", "TestSupport",
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StackCaptureTests",
            dependencies: [
                "CStackCapture", "CStalls", "async-callers", "capture-host", "capture-trials", "coexistence-host",
                "sample-target", "StackCapture", "Symbolication", "TestSupport",
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "SymbolicationTests",
            dependencies: ["Symbolication", "SymbolBenchmark", "TestSupport"],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallCorpusTests",
            dependencies: ["StallCorpus", "StallReports", "stall-corpus", "TestSupport"],
            swiftSettings: swift
        ),
        .testTarget(name: "StallReportsTests", dependencies: ["StallReports", "TestSupport"], swiftSettings: swift),
        .testTarget(name: "StallGateTests", dependencies: ["StallGate", "StallReports"], swiftSettings: swift),
        .testTarget(name: "StallExportTests", dependencies: ["StallExport", "StallReports"], swiftSettings: swift),
        .testTarget(name: "StallShippingTests", dependencies: ["StallShipping", "StallReports"], swiftSettings: swift),
        .testTarget(
            name: "StallDetectionTests",
            dependencies: ["RunLoopKit", "StallDetection", "StallReports", "TestSupport"],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallDiagnosisTests",
            dependencies: ["CRunLoopShims", "RunLoopKit", "StackCapture", "StallDiagnosis", "StallReports"],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallMonitorTests",
            dependencies: [
                "CLocks", "StallDetection", "StallDiagnosis", "StallMonitor", "RunLoopKit", "StackCapture",
                "Symbolication",
                "StallReports",
                "TestSupport", "CRunLoopShims", "cause-host", "pause-host", "threshold-host",
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallMonitorLoopsTests",
            dependencies: ["loop-host", "StallReports", "TestSupport"],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallMonitorServiceTests",
            dependencies: [
                "StallMonitorService", "StallMonitor", "StallReports", "RunLoopKit", "TestSupport", "service-host",
                .product(name: "Configuration", package: "swift-configuration", condition: .when(traits: ["Service"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
                .product(name: "CoreMetrics", package: "swift-metrics", condition: .when(traits: ["Service"])),
                .product(name: "MetricsTestKit", package: "swift-metrics", condition: .when(traits: ["Service"])),
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "ProcessWatchTests",
            dependencies: [
                "ProcessWatch", "RunLoopKit", "StackCapture", "StallMonitor", "StallReports", "TestSupport",
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "CommandTests",
            dependencies: [
                "stall-monitor", "stall-corpus", "reader-fuzz", "sample-target", "ProcessWatch", "StallReports",
                "StallGate", "TestSupport",
            ],
            exclude: ["Collector/canned_server.py", "Shipping/otlp_receiver.py"],
            swiftSettings: swift
        ),
    ]
)
