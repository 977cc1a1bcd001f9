// swift-tools-version: 6.2
import PackageDescription

/// A server as the README has one embed the monitor, and nothing more: that it links, resolves no package of the command's, and is
/// watched. Run by scripts/test.
let package = Package(
    name: "shop",
    dependencies: [.package(name: "stall-monitor", path: "../..", traits: [])],
    targets: [
        .executableTarget(name: "Shop", dependencies: [.product(name: "StallMonitor", package: "stall-monitor")]),
        // What the monitor costs is the difference of these: scripts/embedding --bill.
        .executableTarget(name: "Bare"),
        .executableTarget(name: "Resting", dependencies: [.product(name: "StallMonitor", package: "stall-monitor")]),
        // Tests that must fail and tests that must pass.
        .testTarget(
            name: "ShopTests",
            dependencies: [
                .product(name: "StallReports", package: "stall-monitor"),
                .product(name: "StallTesting", package: "stall-monitor"),
            ]
        ),
    ]
)
