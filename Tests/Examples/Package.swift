// swift-tools-version: 6.2
import PackageDescription

/// Five programs with the monitor in them. Each is one file that can be copied, and a README with the lines that added the monitor. Built
/// and run by scripts/examples. A package of its own, so that a program that embeds the library does not resolve their packages.
let swift: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
let monitor: Target.Dependency = .product(name: "StallMonitor", package: "stall-monitor")
let loops: Target.Dependency = .product(name: "StallMonitorLoops", package: "stall-monitor")
let service: Target.Dependency = .product(name: "StallMonitorService", package: "stall-monitor")

func program(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .executableTarget(name: name, dependencies: dependencies, exclude: ["README.md"], swiftSettings: swift)
}

let package = Package(
    name: "examples",
    dependencies: [
        .package(name: "stall-monitor", path: "../..", traits: ["Service", "Symbols"]),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
        .package(url: "https://github.com/groue/GRDB.swift.git", from: "7.10.0"),
        .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.4.0"),
        .package(url: "https://github.com/grpc/grpc-swift-nio-transport.git", from: "2.9.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1", traits: []),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.8.0"),
    ],
    targets: [
        program(
            "shop",
            [
                service, loops,
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]
        ),
        program(
            "price-server",
            [
                monitor, loops,
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]
        ),
        program(
            "stock-service",
            [
                monitor, loops,
                .product(name: "GRPCCore", package: "grpc-swift-2"),
                .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
            ]
        ),
        program("folder-report", [monitor, loops]),
        program("invoice-worker", [monitor, loops]),
    ]
)
