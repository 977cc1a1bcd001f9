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

/// Programs with a main thread of their own, which the tests run. Not `LoopDifferential`: Foundation, with which it compares, is not
/// sanitized. Not `LoopCounts`: it counts allocations and system calls, and the sanitizer makes its own.
let fixtures = [
    "RunLoopFixture", "AsyncMainFixture", "ConcurrencyFixture", "ClientFixture", "PortsFixture", "PortsExample",
]
/// Those that also put functions of their own in the place of the C library's. Not linked into the test bundle.
let faultFixtures = ["FaultFixture", "ForkFixture", "LoopChurn"]

func fixture(_ name: String, _ more: [Target.Dependency] = []) -> Target {
    .executableTarget(
        name: name,
        dependencies: ["RunLoopKit", "CRunLoopShims"] + more,
        path: "Tests/Fixtures/\(name)",
        swiftSettings: name == "ClientFixture" ? client : swift
    )
}

let package = Package(
    name: "sanitized",
    targets: [
        .target(name: "CRunLoopShims"),
        .target(name: "RunLoopKit", dependencies: ["CRunLoopShims"], exclude: ["README.md"], swiftSettings: swift),
        .target(name: "CFaults", path: "Tests/Fixtures/CFaults"),
        .testTarget(
            name: "RunLoopKitTests",
            dependencies: ["RunLoopKit", "CRunLoopShims"] + fixtures.map { .init(stringLiteral: $0) },
            exclude: ["Foreign/README.md"],
            swiftSettings: swift
        ),
    ] + fixtures.map { fixture($0) } + faultFixtures.map { fixture($0, ["CFaults"]) }
)
