// swift-tools-version: 6.2
import PackageDescription

/// A minimal server that embeds the monitor as the README describes. It tests that the server links, resolves no package of the
/// command, and is watched. Run by scripts/test.
let package = Package(
    name: "shop",
    // The trait of the same name makes a server slim where it is off: `--disable-default-traits`.
    traits: [.default(enabledTraits: ["Symbols"]), "Symbols"],
    dependencies: [
        .package(
            name: "stall-monitor",
            path: "../..",
            traits: [.trait(name: "Symbols", condition: .when(traits: ["Symbols"]))]
        )
    ],
    targets: [
        .executableTarget(name: "Shop", dependencies: [.product(name: "StallMonitor", package: "stall-monitor")]),
        .executableTarget(
            name: "Warehouse",
            dependencies: [
                .product(name: "StallMonitor", package: "stall-monitor"),
                .product(name: "StallMonitorLoops", package: "stall-monitor"),
            ]
        ),
        // The difference between these two is the cost of the monitor: scripts/embedding --bill.
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
        .testTarget(
            name: "ShopXCTests",
            dependencies: [
                .product(name: "StallTesting", package: "stall-monitor"),
                .product(name: "StallTestingXCTest", package: "stall-monitor"),
            ]
        ),
    ]
)
