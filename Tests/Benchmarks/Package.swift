// swift-tools-version: 6.2
import PackageDescription

/// Compares RunLoopKit with its peers, and the hooks with the functions that they replace. This is a separate package, so that
/// users of the library do not resolve or install dependencies that only a comparison needs. Run it with scripts/benchmark.
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
        // The cost per job of the hook on the task pool: the same work in a program without the hook and in one with it.
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
