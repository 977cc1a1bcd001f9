// swift-tools-version: 6.2
import PackageDescription

// The engine, its fixtures and its tests alone, for scripts/tsan: a sanitizer is a setting of a whole build, and the other targets'
// dependencies take long and are not ours to judge. The script links Sources and Tests in beside this file. Keep it in step with the
// Package.swift above.

let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
let client: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]

/// Programs with a main thread of their own, which the tests run.
let fixtures = ["RunLoopFixture", "AsyncMainFixture", "ConcurrencyFixture", "ClientFixture"]

let package = Package(
    name: "sanitized",
    targets: [
        .target(name: "CRunLoopShims"),
        .target(name: "RunLoopKit", dependencies: ["CRunLoopShims"], exclude: ["README.md"], swiftSettings: swift),
        .testTarget(
            name: "RunLoopKitTests",
            dependencies: ["RunLoopKit", "CRunLoopShims"] + fixtures.map { .init(stringLiteral: $0) },
            exclude: ["Foreign/README.md"],
            swiftSettings: swift
        ),
    ]
        + fixtures.map { name in
            .executableTarget(
                name: name,
                dependencies: ["RunLoopKit", "CRunLoopShims"],
                path: "Tests/Fixtures/\(name)",
                swiftSettings: name == "ClientFixture" ? client : swift
            )
        }
)
