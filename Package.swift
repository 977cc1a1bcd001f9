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

/// What only the command needs. Without the trait its packages are not even resolved.
let command = TargetDependencyCondition.when(traits: ["Command"])

let package = Package(
    name: "stall-monitor",
    products: [
        .executable(name: "stall-monitor", targets: ["stall-monitor"]),
        .library(name: "RunLoopKit", targets: ["RunLoopKit"]),
        .library(name: "StackCapture", targets: ["StackCapture", "Symbolication"]),
        .library(name: "StallReports", targets: ["StallReports"]),
        .library(name: "StallGate", targets: ["StallGate"]),
        .library(name: "StallMonitor", targets: ["StallMonitor"]),
        .library(name: "StallMonitorService", targets: ["StallMonitorService"]),
    ],
    traits: [
        .trait(name: "Command", description: "Builds the stall-monitor command, with its server and client packages.")
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-configuration.git", from: "1.4.0", traits: ["YAML"]),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
        .package(url: "https://github.com/apple/swift-system.git", from: "1.8.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1", traits: []),
        .package(url: "https://github.com/swift-server/async-http-client.git", from: "1.37.0"),
        .package(url: "https://github.com/swiftlang/swift-subprocess.git", from: "1.0.2", traits: []),
    ],
    targets: [
        // The engine.
        .target(name: "CRunLoopShims", cSettings: c),
        .target(name: "RunLoopKit", dependencies: ["CRunLoopShims"], exclude: ["README.md"], swiftSettings: swift),

        // A thread's stack, and names for it.
        .target(name: "CStackCapture", exclude: ["README.md"], cSettings: c + [.define("_GNU_SOURCE")]),
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

        // The monitor.
        .target(name: "CMonitorShims", cSettings: c),
        .target(
            name: "StallMonitor",
            dependencies: ["CMonitorShims", "RunLoopKit", "StackCapture", "Symbolication", "StallReports"],
            swiftSettings: swift
        ),
        .target(
            name: "StallMonitorService",
            dependencies: [
                "StallMonitor",
                "StallReports",
                .product(name: "Configuration", package: "swift-configuration"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SystemPackage", package: "swift-system"),
            ],
            swiftSettings: swift
        ),

        // Stalls made on purpose, and the judge of what the monitor says of them. No product: for the command and the tests.
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
                "StallMonitor",
                "StackCapture",
                "Symbolication",
                .target(name: "StallCorpus", condition: command),
                .product(name: "ArgumentParser", package: "swift-argument-parser", condition: command),
                .product(name: "Hummingbird", package: "hummingbird", condition: command),
                .product(name: "Logging", package: "swift-log", condition: command),
                .product(name: "NIOCore", package: "swift-nio", condition: command),
                .product(name: "NIOFoundationCompat", package: "swift-nio", condition: command),
                .product(name: "NIOHTTP1", package: "swift-nio", condition: command),
                .product(name: "SystemPackage", package: "swift-system", condition: command),
                .product(name: "AsyncHTTPClient", package: "async-http-client", condition: command),
                .product(name: "Subprocess", package: "swift-subprocess", condition: command),
            ],
            swiftSettings: swift
        ),

        // What tests of several targets share, and programs with a main thread of their own.
        .target(name: "TestSupport", dependencies: ["RunLoopKit"], path: "Tests/Support", swiftSettings: swift),
        .executableTarget(
            name: "stall-corpus",
            dependencies: ["StallCorpus", "StallReports"],
            path: "Tests/Fixtures/stall-corpus",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "RunLoopFixture",
            dependencies: ["RunLoopKit", "CRunLoopShims"],
            path: "Tests/Fixtures/RunLoopFixture",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "AsyncMainFixture",
            dependencies: ["RunLoopKit"],
            path: "Tests/Fixtures/AsyncMainFixture",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "async-callers",
            dependencies: ["StackCapture", "Symbolication"],
            path: "Tests/Fixtures/async-callers",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "ConcurrencyFixture",
            dependencies: ["RunLoopKit"],
            path: "Tests/Fixtures/ConcurrencyFixture",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "ClientFixture",
            dependencies: ["RunLoopKit"],
            path: "Tests/Fixtures/ClientFixture",
            swiftSettings: client
        ),
        // Not among the tests' dependencies: their objects would be linked into the test bundle, with the allocator and the system calls
        // that they put in the place of the C library's.
        .target(name: "CFoundationRunLoop", path: "Tests/Fixtures/CFoundationRunLoop", cSettings: c),
        .executableTarget(
            name: "LoopDifferential",
            dependencies: ["RunLoopKit", "CFoundationRunLoop"],
            path: "Tests/Fixtures/LoopDifferential",
            swiftSettings: swift
        ),
        .target(name: "CAllocations", path: "Tests/Fixtures/CAllocations", cSettings: c),
        .executableTarget(
            name: "LoopCounts",
            dependencies: ["RunLoopKit", "CAllocations"],
            path: "Tests/Fixtures/LoopCounts",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "WatchLoad",
            dependencies: ["StallMonitor", "RunLoopKit"],
            path: "Tests/Fixtures/WatchLoad",
            swiftSettings: swift
        ),
        .target(name: "CFaults", path: "Tests/Fixtures/CFaults", cSettings: c),
        .executableTarget(
            name: "FaultFixture",
            dependencies: ["CFaults", "CRunLoopShims", "RunLoopKit"],
            path: "Tests/Fixtures/FaultFixture",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "ForkFixture",
            dependencies: ["CFaults", "CRunLoopShims", "RunLoopKit"],
            path: "Tests/Fixtures/ForkFixture",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "LoopChurn",
            dependencies: ["CFaults", "RunLoopKit"],
            path: "Tests/Fixtures/LoopChurn",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "PortsFixture",
            dependencies: ["RunLoopKit", "CRunLoopShims"],
            path: "Tests/Fixtures/PortsFixture",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "PortsExample",
            dependencies: ["RunLoopKit"],
            path: "Tests/Fixtures/PortsExample",
            swiftSettings: swift
        ),
        .testTarget(
            name: "RunLoopKitTests",
            dependencies: [
                "RunLoopKit", "CRunLoopShims", "RunLoopFixture", "AsyncMainFixture", "ConcurrencyFixture",
                "ClientFixture", "PortsFixture", "PortsExample",
            ],
            exclude: ["Foreign/README.md"],
            swiftSettings: swift
        ),
        .target(
            name: "CLocks",
            path: "Tests/Fixtures/CLocks",
            cSettings: c + [.define("_GNU_SOURCE")]
        ),
        .target(
            name: "CStalls",
            path: "Tests/Fixtures/CStalls",
            cSettings: c + [.define("_GNU_SOURCE")]
        ),
        .executableTarget(
            name: "capture-host",
            dependencies: ["CStalls", "StackCapture", "Symbolication"],
            path: "Tests/Fixtures/capture-host",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "sample-target",
            path: "Tests/Fixtures/SampleTarget",
            cSettings: c + [.define("_GNU_SOURCE")]
        ),
        .target(
            name: "CCoexistence",
            path: "Tests/Fixtures/CCoexistence",
            cSettings: c + [.define("_GNU_SOURCE")]
        ),
        .executableTarget(
            name: "coexistence-host",
            dependencies: ["CCoexistence", "StackCapture"],
            path: "Tests/Fixtures/coexistence-host",
            swiftSettings: swift
        ),
        .target(
            name: "CTrials",
            dependencies: ["CStackCapture"],
            path: "Tests/Fixtures/CTrials",
            cSettings: c + [.define("_GNU_SOURCE"), .headerSearchPath("../../../Sources/CStackCapture")]
        ),
        .executableTarget(
            name: "capture-trials",
            dependencies: ["CTrials", "StackCapture", "Symbolication"],
            path: "Tests/Fixtures/capture-trials",
            exclude: ["compare_stacks.py"],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StackCaptureTests",
            dependencies: [
                "CStackCapture", "CStalls", "async-callers", "capture-host", "capture-trials", "coexistence-host",
                "sample-target", "StackCapture",
                "Symbolication",
                "TestSupport",
            ],
            swiftSettings: swift
        ),
        .executableTarget(
            name: "SymbolBenchmark",
            dependencies: ["Symbolication"],
            path: "Tests/Fixtures/SymbolBenchmark",
            swiftSettings: swift
        ),
        .testTarget(
            name: "SymbolicationTests",
            dependencies: ["Symbolication", "SymbolBenchmark"],
            swiftSettings: swift
        ),
        .target(
            name: "CDiskFaults",
            path: "Tests/Fixtures/CDiskFaults",
            cSettings: c + [.define("_GNU_SOURCE")]
        ),
        .executableTarget(
            name: "DiskFixture",
            dependencies: ["CDiskFaults", "RunLoopKit", "StallMonitor", "StallReports"],
            path: "Tests/Fixtures/DiskFixture",
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallCorpusTests",
            dependencies: ["StallCorpus", "StallReports", "stall-corpus"],
            swiftSettings: swift
        ),
        // Not among the tests' dependencies: it replaces functions of the C library.
        .target(name: "CMortalHost", path: "Tests/Fixtures/CMortalHost", cSettings: c),
        .executableTarget(
            name: "mortal-host",
            dependencies: ["CMortalHost", "RunLoopKit", "StallMonitor", "StallReports"],
            path: "Tests/Fixtures/mortal-host",
            swiftSettings: swift
        ),
        .testTarget(name: "StallReportsTests", dependencies: ["StallReports"], swiftSettings: swift),
        .testTarget(name: "StallGateTests", dependencies: ["StallGate", "StallReports"], swiftSettings: swift),
        .executableTarget(
            name: "pause-host",
            dependencies: ["RunLoopKit", "StallMonitor", "StallReports"],
            path: "Tests/Fixtures/pause-host",
            swiftSettings: swift
        ),
        .executableTarget(
            name: "cause-host",
            dependencies: ["RunLoopKit", "StallMonitor", "StallReports"],
            path: "Tests/Fixtures/CauseHost",
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallMonitorTests",
            dependencies: [
                "CLocks", "StallMonitor", "RunLoopKit", "StackCapture", "Symbolication", "StallReports", "TestSupport",
                "CRunLoopShims", "cause-host", "pause-host",
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallMonitorServiceTests",
            dependencies: [
                "StallMonitorService",
                "StallMonitor",
                "StallReports",
                .product(name: "Configuration", package: "swift-configuration"),
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "CommandTests",
            dependencies: ["stall-monitor", "sample-target", "StallReports", "StallGate", "TestSupport"],
            swiftSettings: swift
        ),
    ]
)
