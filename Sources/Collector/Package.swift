// swift-tools-version: 6.2
import PackageDescription

// The collector is a package of its own, so that programs that embed the monitor, and the command, neither resolve nor build a server and a
// database.

let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

let package = Package(
    name: "stall-collector",
    products: [.executable(name: "stall-collector", targets: ["stall-collector"])],
    // BoringSSL takes as long to build as everything else together.
    traits: [.trait(name: "TLS", description: "serve speaks HTTPS, by '--tls-certificate' and '--tls-key'.")],
    dependencies: [
        .package(name: "stall-monitor", path: "../..", traits: []),
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-http-types.git", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
        .package(url: "https://github.com/apple/swift-nio-extras.git", from: "1.34.0"),
        .package(url: "https://github.com/groue/GRDB.swift.git", from: "7.10.0"),
        .package(url: "https://github.com/jpsim/Yams", "6.0.0"..<"7.0.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1"),
        .package(url: "https://github.com/hummingbird-project/swift-mustache.git", from: "2.1.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.8.0"),
    ],
    targets: [
        // Decodes reports with simdjson, because the collector decodes very many.
        .target(name: "CSimdjson", linkerSettings: [.linkedLibrary("simdjson")]),
        .target(
            name: "TapeDecoding",
            dependencies: ["CSimdjson", .product(name: "StallReports", package: "stall-monitor")],
            swiftSettings: swift
        ),
        // Compresses what is stored, in less than half of gzip's time.
        .systemLibrary(name: "CZstd", path: "Sources/CZstd", providers: [.apt(["libzstd-dev"])]),
        .target(
            name: "ZstdCompression",
            dependencies: ["CZstd", .product(name: "GzipCompression", package: "stall-monitor")],
            swiftSettings: swift
        ),
        // Tells when a file that an operator maintains has changed.
        .target(name: "FileVersions", swiftSettings: swift),
        // Stores what monitors sent, in SQLite, and answers questions about it.
        .target(
            name: "StallStore",
            dependencies: [
                "FileVersions", "TapeDecoding", "ZstdCompression",
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "GzipCompression", package: "stall-monitor"),
                .product(name: "StallReports", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
        // The same on the servers of a ClickHouse cluster, for any number of collectors.
        .target(
            name: "ClickHouseStore",
            dependencies: [
                "StallStore",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "StallReports", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
        // The HTTP server: takes reports, answers questions, shows pages.
        .target(
            name: "StallCollector",
            dependencies: [
                "FileVersions", "StallStore", "ZstdCompression",
                .product(name: "GzipCompression", package: "stall-monitor"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird", condition: .when(traits: ["TLS"])),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Mustache", package: "swift-mustache"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "StallExport", package: "stall-monitor"),
                .product(name: "StallReports", package: "stall-monitor"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
                .product(name: "WebRequests", package: "stall-monitor"),
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: swift
        ),
        .executableTarget(
            name: "stall-collector",
            dependencies: [
                "ClickHouseStore",
                "StallCollector",
                "StallStore",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "StallReports", package: "stall-monitor"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            swiftSettings: swift
        ),

        .executableTarget(
            name: "DecodingFigures",
            dependencies: ["StallStore"],
            path: "Tests/DecodingFigures",
            swiftSettings: swift
        ),
        .testTarget(
            name: "TapeDecodingTests",
            dependencies: [
                "StallStore", "TapeDecoding",
                .product(name: "StallReports", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallStoreTests",
            dependencies: [
                "ClickHouseStore", "StallStore",
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "GzipCompression", package: "stall-monitor"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "StallReports", package: "stall-monitor"),
            ],
            path: "Tests/StallStoreTests",
            swiftSettings: swift
        ),
        .testTarget(
            name: "StallCollectorTests",
            dependencies: [
                "StallCollector", "StallStore", "ZstdCompression", "stall-collector",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "GzipCompression", package: "stall-monitor"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Mustache", package: "swift-mustache"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "StallExport", package: "stall-monitor"),
                .product(name: "StallReports", package: "stall-monitor"),
                .product(name: "WebRequests", package: "stall-monitor"),
            ],
            swiftSettings: swift
        ),
    ],
    cxxLanguageStandard: .cxx17
)
