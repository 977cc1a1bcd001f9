// swift-tools-version: 6.2
import PackageDescription

/// Servers on SwiftNIO, Hummingbird and Foundation that stall when ordered: targets of scripts/trials. A separate
/// package, so that a program that embeds the library does not resolve their packages.
let swift: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]

let package = Package(
    name: "loop-servers",
    dependencies: [
        .package(name: "stall-monitor", path: "../..", traits: ["Command"]),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1", traits: []),
    ],
    targets: [
        .target(
            name: "LoopServers",
            dependencies: [
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: swift
        ),
        // Contains no monitor.
        .executableTarget(name: "loop-server", dependencies: ["LoopServers"], swiftSettings: swift),
        // The same, with the monitor.
        .executableTarget(
            name: "loop-server-watched",
            dependencies: [
                "LoopServers",
                .product(name: "StallMonitor", package: "stall-monitor"),
                .product(name: "StallMonitorLoops", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
    ]
)
