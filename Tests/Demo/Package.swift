// swift-tools-version: 6.2
import PackageDescription

/// A real server that the monitor watches, and a demo that stalls it in eight ways. Run by scripts/run.
let package = Package(
    name: "demo",
    dependencies: [
        .package(name: "stall-monitor", path: "../..", traits: ["Command"]),
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1", traits: []),
    ],
    targets: [
        .executableTarget(
            name: "stall-demo",
            dependencies: [
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "RunLoopKit", package: "stall-monitor"),
                .product(name: "StallMonitor", package: "stall-monitor"),
                .product(name: "StallMonitorLoops", package: "stall-monitor"),
                .product(name: "StallReports", package: "stall-monitor"),
                .product(name: "WebRequests", package: "stall-monitor"),
            ],
            swiftSettings: [.swiftLanguageMode(.v6), .strictMemorySafety(), .treatAllWarnings(as: .error)]
        )
    ]
)
