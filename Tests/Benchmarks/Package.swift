// swift-tools-version: 6.2
import PackageDescription

/// RunLoopKit beside its peers, and the hooks beside what they stand before. A package of its own, so that nobody who depends on the library resolves or installs what only a
/// comparison needs. Run it with scripts/benchmark.
let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
let c: [CSetting] = [
    .treatAllWarnings(as: .error), .enableWarning("all"), .enableWarning("extra"), .define("_GNU_SOURCE"),
]

let package = Package(
    name: "loop-benchmarks",
    dependencies: [
        .package(name: "stall-monitor", path: "../..", traits: []),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
    ],
    targets: [
        .systemLibrary(name: "CUV", pkgConfig: "libuv", providers: [.apt(["libuv1-dev"])]),
        .systemLibrary(name: "CGLib", pkgConfig: "glib-2.0", providers: [.apt(["libglib2.0-dev"])]),
        .systemLibrary(name: "CEvent", pkgConfig: "libevent_pthreads", providers: [.apt(["libevent-dev"])]),
        .target(name: "CPeers", dependencies: ["CUV", "CGLib", "CEvent"], cSettings: c),
        .target(name: "CWaits", cSettings: c),
        .executableTarget(
            name: "WaitCosts",
            dependencies: [
                "CWaits",
                .product(name: "StallMonitor", package: "stall-monitor"),
                .product(name: "StallMonitorLoops", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
        .executableTarget(
            name: "LoopBenchmarks",
            dependencies: [
                "CPeers",
                .product(name: "RunLoopKit", package: "stall-monitor"),
                .product(name: "RunLoopPorts", package: "stall-monitor"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: swift
        ),
        // What the hook on the task pool costs a job: the same work in a program without it and in one with it.
        .target(name: "PoolJobs", swiftSettings: swift),
        .executableTarget(name: "PoolJobsPlain", dependencies: ["PoolJobs"], swiftSettings: swift),
        .executableTarget(
            name: "PoolJobsHooked",
            dependencies: [
                "PoolJobs",
                .product(name: "StallMonitor", package: "stall-monitor"),
                .product(name: "StallMonitorLoops", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
    ]
)
